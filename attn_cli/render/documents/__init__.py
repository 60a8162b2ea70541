"""Blocks as documents: HTML, LaTeX, Markdown, SVG; loaded when such a format is written."""
