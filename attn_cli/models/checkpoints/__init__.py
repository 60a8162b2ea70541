"""Pretrained models from a local Hugging Face folder, computed with NumPy: every layer's attention."""
