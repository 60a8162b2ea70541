"""Tests of what makes the files in data/: python -m pytest data/making/tests."""
