"""The interactive page's size and speed: `python -m tests.bench.page`. Needs playwright and Chromium.

A large page holds the weights of 12 layers of 12 heads over 512 tokens. Opening lasts from the request to the drawn
page; hovering lasts from the pointer's move, over the matrix, to the next frame.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.opponents import NUMPY
from tests.bench.startup import ATTN, cpu
from tests.shell import attn

FOX = "The quick brown fox jumped over the lazy dog"
TOKENS, LAYERS, HEADS = 512, 12, 12
OPENINGS, MOVES = 5, 60
HOVER = """async ([x, y]) => {
  const canvas = document.querySelector("#matrix canvas"), box = canvas.getBoundingClientRect();
  const began = performance.now();
  const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true };
  canvas.dispatchEvent(new PointerEvent("pointermove", at));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}"""


def figures(pairs: int = 5) -> Iterator[tuple[str, str, float, float]]:
    """Yield what the page of saved weights takes, 268 tokens in 6 layers of 12 heads: processor time, and bytes."""
    what = "page, 268 tokens x 72 heads"
    with tempfile.TemporaryDirectory() as name:
        weights, path = Path(name) / "w.npz", Path(name) / "page.html"
        np.savez(weights, attentions=many_heads())
        command = [*ATTN, "show", str(weights), "-f", "page", "-o", str(path)]
        cpu(command), cpu(NUMPY)
        taken = [(cpu(command), cpu(NUMPY)) for _ in range(pairs)]
        yield f"{what}, CPU seconds", "-", statistics.median(one for one, _ in taken), 0.5
        yield f"{what}, CPU", "import numpy", statistics.median(one / other for one, other in taken), 5.5
        yield f"{what}, megabytes", "-", path.stat().st_size / 1e6, 2.0


def many_heads() -> np.ndarray:
    """Return the weights (6, 12, 268, 268) of random scores; a few keys draw many queries, as models' do."""
    n, draw = 268, np.random.default_rng(0)
    scores = draw.normal(0, 1.5, (6, 12, n, n)) + 5 * draw.binomial(1, 0.03, (6, 12, 1, n))
    exps = np.exp(scores)
    return (exps / exps.sum(axis=-1, keepdims=True)).astype(np.float32)


def large(folder: Path) -> Path:
    """Write random weights as a model's, and return the page of them."""
    draw = np.random.default_rng(0)
    exps = np.exp(2 * draw.standard_normal((LAYERS, HEADS, TOKENS, TOKENS), dtype=np.float32))
    np.savez(folder / "w.npz", attentions=exps / exps.sum(axis=-1, keepdims=True),
             tokens=[f"word{n}" for n in range(TOKENS)])  # fmt: skip
    made("show", str(folder / "w.npz"), "-f", "page", "-o", str(folder / "large.html"))
    return folder / "large.html"


def made(*args: str) -> None:
    """Run attn, which must work."""
    ran = attn(*args, timeout=600)
    if ran.code:
        sys.exit(ran.err)


def main() -> None:
    """Print sizes, and the time that opening and hovering take."""
    from tests.browser import chromium

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages = {"nine words": ["--words", "0"], "nine words, 3,000 to type with": []}
        for what, options in pages.items():
            path = folder / "page.html"
            made("page", FOX, *options, "-o", str(path))
            print(f"{what}: {path.stat().st_size / 1e3:,.0f} KB")
        path = large(folder)
        print(
            f"{TOKENS} tokens x {LAYERS} layers x {HEADS} heads: {path.stat().st_size / 1e6:.1f} MB, at most 60"
        )
        with chromium() as browser:
            opening, hovering = _timed(browser, path)
    print(
        f"opening: {statistics.median(opening):.2f} s ({min(opening):.2f} to {max(opening):.2f}), at most 3"
    )
    ranked = sorted(hovering)
    print(
        f"hover: median {statistics.median(ranked):.0f} ms, 95 % within {ranked[len(ranked) * 95 // 100]:.0f} ms, "
        f"at most {ranked[-1]:.0f}; to reach 50"
    )


def _timed(browser: object, path: Path) -> tuple[list[float], list[float]]:
    from tests.browser import Opened

    opening, hovering = [], []
    for _ in range(OPENINGS):
        page = browser.new_page(viewport={"width": 1440, "height": 900})  # type: ignore[attr-defined]
        opened = Opened(page)
        began = time.perf_counter()
        opened.go(path, "#view=head")
        opening.append(time.perf_counter() - began)
        for at in np.random.default_rng(1).random((MOVES // OPENINGS, 2)).tolist():
            hovering.append(page.evaluate(HOVER, at))
        page.close()
        if opened.complaints:
            sys.exit("\n".join(opened.complaints))
    return opening, hovering


if __name__ == "__main__":
    main()
