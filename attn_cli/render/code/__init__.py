"""Scripts that recompute a trace in NumPy, PyTorch or Keras."""
