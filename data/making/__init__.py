"""How the files in data/ were made."""
