"""The record of one computation."""
