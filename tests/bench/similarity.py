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


def main(path: str) -> None:
    table = bundled()
    lines = [line.split("\t") for line in Path(path).read_text("utf-8").splitlines() if line[:1] != "#"]
    both = [(look_up(one, table), look_up(other, table), float(score)) for one, other, score in lines]
    known = [(a[1], b[1], score) for a, b, score in both if a is not None and b is not None]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b, _ in known]
    rho = spearmanr(cosines, [score for *_, score in known]).statistic
    print(f"Spearman {rho:.4f} over {len(known)} of {len(lines)} pairs")


if __name__ == "__main__":
    main(sys.argv[1])
