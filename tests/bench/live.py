"""How long attn live takes from a key to the whole screen that answers it; `tests.live.latency` has more cases."""

from collections.abc import Iterator

from tests.live.latency import measured


def figures(keys: int = 60) -> Iterator[tuple[str, str, float, float]]:
    """Yield the median milliseconds of a key, and of a letter that is typed, with nine words on the screen."""
    for what, case, most in (("a key", "9 words", 25.0), ("a typed letter", "9 words, typing", 40.0)):
        times, _ = measured(case, keys)
        yield f"attn live, {what}, milliseconds", "-", times[len(times) // 2], most
