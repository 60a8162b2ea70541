"""Faults injected into every command that writes: `python -m tests.faults`."""
