"""Benchmarks: attention against textbook NumPy and PyTorch on the same machine, pair by pair."""
