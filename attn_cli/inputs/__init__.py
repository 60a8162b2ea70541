"""Inputs from files and options: matrices, saved weights, token labels, key-value pairs."""
