"""Blocks to Markdown, LaTeX, HTML and SVG."""
