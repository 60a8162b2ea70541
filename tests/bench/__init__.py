"""Benchmarks: ratios against a peer on the same machine in the same run. `python -m tests.bench`."""
