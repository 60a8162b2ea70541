"""How much memory something takes while it is made, beside what was held before."""

import tracemalloc
from collections.abc import Callable


def peak(make: Callable[[], object]) -> int:
    """Return the most bytes that were held at once."""
    tracemalloc.start()
    try:
        make()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
