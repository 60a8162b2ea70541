"""Settings: declared once, checked, and read from files."""
