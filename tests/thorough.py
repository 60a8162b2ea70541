"""How often a random test draws: a third of its number by default, all of it where THOROUGH is set."""

import os

IS_THOROUGH = bool(os.environ.get("THOROUGH"))


def often(count: int) -> int:
    """Return how many of `count` random cases this run tries."""
    return count if IS_THOROUGH else -(-count // 3)
