"""What people hand in: matrices, saved weights, labels, key-value pairs."""
