"""The interactive page's size and speed; opening it and hovering over it need playwright and Chromium.

Opening lasts from the request to the drawn page; hovering from the pointer's move, over the matrix, to the next frame.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.row import ATTN, Row, compared, ran
from tests.bench.startup import FOX, NUMPY, OPPONENTS

TOKENS, LAYERS = 512, 12
MOVES = 12  # of the pointer, on each page that is opened
HOVER = """async ([x, y]) => {
  const canvas = document.querySelector("#matrix canvas"), box = canvas.getBoundingClientRect();
  const began = performance.now();
  const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true };
  canvas.dispatchEvent(new PointerEvent("pointermove", at));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}"""


def rows(pairs: int = 5) -> Iterator[Row]:
    what = "page, 268 tokens x 72 heads"
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "page.html")
        np.savez(f"{name}/w.npz", attentions=many_heads())
        command = [*ATTN, "show", f"{name}/w.npz", "-f", "page", "-o", str(path)]
        row = compared(f"{what}, CPU", command, NUMPY, OPPONENTS[NUMPY], 5.5, pairs)
        yield row
        yield Row(f"{what}, CPU", "-", row.ours, [], 0.5)
        yield Row(what, "-", [path.stat().st_size], [], 2e6, "B")


def many_heads(layers: int = 6, n: int = 268) -> np.ndarray:
    """Return the weights (layers, 12, n, n) of random scores; a few keys draw many queries, as models' do."""
    draw = np.random.default_rng(0)
    exps = np.exp(draw.normal(0, 1.5, (layers, 12, n, n)) + 5 * draw.binomial(1, 0.03, (layers, 12, 1, n)))
    return (exps / exps.sum(axis=-1, keepdims=True)).astype(np.float32)


def opened(pairs: int = 5) -> Iterator[Row]:
    from tests.browser import Opened, chromium

    opening, hovering = [], []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "page.html")
        for what, options in {"nine words": ["--words", "0"], "nine words, 3,000 to type with": []}.items():
            ran([*ATTN, "page", FOX, *options, "-o", str(path)])
            yield Row(f"page of {what}", "-", [path.stat().st_size], [], None, "B")
        words = [f"word{n}" for n in range(TOKENS)]
        np.savez(f"{name}/w.npz", attentions=many_heads(LAYERS, TOKENS), tokens=words)
        ran([*ATTN, "show", f"{name}/w.npz", "-f", "page", "-o", str(path)])
        what = f"page, {TOKENS} tokens x {LAYERS * 12} heads"
        yield Row(what, "-", [path.stat().st_size], [], 60e6, "B")
        with chromium() as browser:
            for _ in range(pairs):
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                shown = Opened(page)
                began = time.perf_counter()
                shown.go(path, "#view=head")
                opening.append(time.perf_counter() - began)
                moves = np.random.default_rng(1).random((MOVES, 2)).tolist()
                hovering += [page.evaluate(HOVER, at) / 1000 for at in moves]
                page.close()
                if shown.complaints:
                    sys.exit("\n".join(shown.complaints))
        yield Row(f"{what}, opening", "-", opening, [], 3.0)
        yield Row(f"{what}, hover", "-", hovering, [], 0.05)
        yield Row(f"{what}, 95 % of hovers", "-", [float(np.quantile(hovering, 0.95))], [], None)
