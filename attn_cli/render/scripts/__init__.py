"""What a script is made of: literals, the data that a trace starts from, and the frameworks' ways of saying it."""
