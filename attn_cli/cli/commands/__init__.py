"""The commands, some in a file. What computes is imported when a command runs, not before."""
