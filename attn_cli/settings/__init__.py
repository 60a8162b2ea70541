"""Settings: declared once, and checked."""
