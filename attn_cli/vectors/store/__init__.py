"""Word vectors at rest: tables, indexes, caches."""
