"""How long attn live takes from a key to the whole screen that answers it; `tests.live.latency` has more cases."""

from collections.abc import Iterator

from tests.bench.row import Row
from tests.live.latency import measured


def rows(keys: int = 60) -> Iterator[Row]:
    """Yield what a key takes, and a letter that is typed, with nine words on the screen."""
    for what, case, most in (("a key", "9 words", 0.025), ("a typed letter", "9 words, typing", 0.04)):
        times, _ = measured(case, keys)
        yield Row(f"attn live, {what}", "-", [time / 1000 for time in times], [], most)
