"""What each screen shows: from a Trace to blocks."""
