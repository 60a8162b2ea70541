"""Word vectors in memory and on disk: tables, indexes, caches."""
