"""Pairs of sentences whose pronoun changes its noun: `python -m tests.bench.flips MODEL FILE...`.

Lines 2n and 2n + 1 of a file are a pair: the pronoun stands for the second of two nouns and no longer for the first. A
sentence is right where the right noun has more of the pronoun's attention than the other one; `first` is the first
noun's share of what both have, and `moves` how much of it goes over to the second (1 at most).
"""

import json
from pathlib import Path

import numpy as np
import typer

from attn_cli.learn.score import head_weights
from attn_cli.learn.treebank import read_passages
from attn_cli.models.model_file import named
from attn_cli.vectors import bundled

HEAD = "antecedent"
FILES = [Path(__file__).parents[1] / f"models/flips-{part}.jsonl" for part in ("dev", "test")]


def pairs(path):
    """Return a file's pairs, the sentence in which the first noun is right before the other."""
    read = iter(read_passages(str(path)))
    first_noun = lambda sentence: sentence.antecedents[0].words  # noqa: E731
    return [tuple(sorted(both, key=first_noun)) for both in zip(read, read, strict=True)]


def flip(stack, pair):
    """Measure a pair, as the commands compute its weights: what is printed of it, and averaged over all."""
    shares = []  # the first noun's
    strongest = []  # whether the row's strongest link is to the right noun
    for sentence in pair:
        (one,) = sentence.antecedents
        row = head_weights(stack, bundled(), sentence.words)[HEAD][one.pronoun]
        first, second = (row[start:end].sum() for start, end in one.candidates)
        shares.append(float(first / (first + second)))
        strongest.append(int(row.argmax()) in one.words)
    right = (shares[0] > 0.5, shares[1] < 0.5)  # whether the right noun has more weight than the other
    told = {"right": np.mean(right), "both": all(right), "strongest": np.mean(strongest)}
    return told | {"first": np.mean(shares), "moves": shares[0] - shares[1]}


def measure(stack, found):
    flips = [flip(stack, pair) for pair in found]
    return flips, {name: float(np.mean([one[name] for one in flips])) for name in flips[0]}


def main(model: str, files: list[Path] = typer.Argument(FILES)) -> None:  # noqa: B008
    """Measure each file, with its marks and (as the commands read a text) without; print a line for each, as JSON."""
    stack = named(model)
    for path in files:
        written = pairs(path)
        bare = [(a.without_punctuation(), b.without_punctuation()) for a, b in written]
        for marks, found in (("with", written), ("without", bare)):
            shown = {name: round(share, 3) for name, share in measure(stack, found)[1].items()}
            print(json.dumps({"file": path.name, "marks": marks, "pairs": len(found), **shown}))


if __name__ == "__main__":
    typer.run(main)
