"""The commands, one short file each. What computes is imported when a command runs, not before."""
