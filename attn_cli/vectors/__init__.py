"""Word vectors: tables, lookup, neighbours, training."""
