"""A language model beside a 5-gram model: `python -m tests.bench.language MODEL TEXT... --dev TREEBANK...`.

The n-gram model (interpolated Kneser-Ney) counts as many words of these texts as the model has learned from, over the
same vocabulary. Both are measured on the held-back lines of the texts and on each treebank; a line is read by itself.
"""

import argparse
import os

import numpy as np

from attn_cli.io.files import data_path
from attn_cli.learn.language_score import perplexity as of_model
from attn_cli.learn.treebank import read_treebank
from attn_cli.models.encoder import word_number
from attn_cli.models.model_file import BUNDLED, named
from attn_cli.vectors import bundled
from data.making.corpus import lines
from data.making.language_text import LONGEST, LanguageText
from tests.bench.kneser_ney import KneserNey, perplexity


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--dev", nargs="*", default=[])
    given = parser.parse_args()
    stack, table = named(given.model), bundled()
    before = stack.facts.get("pretrained_on", {})
    words = int(str(stack.facts["words"])) + (before["words"] if isinstance(before, dict) and before else 0)
    text = LanguageText(bundled(), 0, 0)
    numbers, _ = text.read(given.texts, words, lambda stage: None)
    text.freeze()
    learned = [text.rows[text.line(number)].astype(np.int64) for number in numbers]
    rows = {word: n for n, word in enumerate(table.block[1:-1].split(b"\n"))}
    n_grams = [KneserNey(learned, len(rows) + 1, 5, modified) for modified in (False, True)]
    held_back = [line[:LONGEST] for path in given.texts for line in lines(path, held_back=True)]
    sets = {os.path.basename(path): [one.words for one in read_treebank(path)] for path in given.dev}
    sets = {"lines held back": held_back} | sets
    print(f"| text | words | unknown | {stack.name} | 5-gram, one discount | 5-gram, three |")
    print("|:--|--:|--:|--:|--:|--:|")
    for name, texts in sets.items():
        told = of_model(stack, table, texts, lambda stage: None)
        numbers = [np.array([word_number(word, rows) for word in line], np.int64) for line in texts]
        beside = " | ".join(f"{perplexity(model, numbers):.1f}" for model in n_grams)
        mine = f"{told.words:,} | {told.unknown:,} | **{told.perplexity:.1f}**"
        print(f"| {name} | {mine} | {beside} |", flush=True)
    path = data_path(f"{given.model}.safetensors") if given.model in BUNDLED else given.model
    count, size = n_grams[1].size
    print(f"\nLearned from {sum(map(len, learned)):,} words.")
    own = f"{stack.name}: {os.path.getsize(path):,} bytes"
    print(f"{own}; the 5-gram model: {count:,} n-grams, {size:,} bytes.")


if __name__ == "__main__":
    main()
