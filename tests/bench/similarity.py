"""How well the bundled vectors agree with people: `python -m tests.bench.similarity wordsim353.tsv`.

Spearman's rank correlation (ties averaged) between cosines and people's scores, over the pairs whose words
both have a vector (SciPy). FILE holds two words and a score on each line, tab-separated; `#` starts a comment.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from attn_cli.vectors import bundled
from attn_cli.vectors.lookup import look_up


def similarity(path: str) -> tuple[float, int, int]:
    """Return Spearman's rho, the pairs covered, and the pairs in the file."""
    table = bundled()
    text = Path(path).read_text(encoding="utf-8")
    lines = [line.split("\t") for line in text.splitlines() if line[:1] != "#"]
    cosines, scores = [], []
    for one, other, score in lines:
        a, b = look_up(one, table), look_up(other, table)
        if a is not None and b is not None:
            cosines.append(a[1] @ b[1] / np.linalg.norm(a[1]) / np.linalg.norm(b[1]))
            scores.append(float(score))
    return float(spearmanr(cosines, scores).statistic), len(scores), len(lines)


if __name__ == "__main__":
    rho, covered, pairs = similarity(sys.argv[1])
    print(f"Spearman {rho:.4f} over {covered} of {pairs} pairs")
