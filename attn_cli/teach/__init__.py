"""Worked examples, exercises, comparisons, the soft dictionary."""
