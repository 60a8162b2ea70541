"""Inputs from files and options: matrices, saved weights, token labels, masks, key-value pairs."""
