"""The worksheet of an exercise, and its key."""
