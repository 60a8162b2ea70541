"""Many texts in one run: lines read, computed in groups of one shape, written in order, by several processes."""
