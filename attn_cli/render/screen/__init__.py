"""Blocks to lines on a terminal."""
