"""The formats that a result is written in."""
