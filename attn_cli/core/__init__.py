"""Attention itself. It needs NumPy, threadpoolctl and `errors`, nothing else."""
