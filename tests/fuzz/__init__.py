"""Campaigns that try to break the readers of word vectors: `python -m tests.fuzz`, `python -m tests.fuzz.kill`."""
