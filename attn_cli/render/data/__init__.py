"""Formats for other programs: JSON, CSV, NumPy files."""
