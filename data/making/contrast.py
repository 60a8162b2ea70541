"""Spliced passages as a trainer reads them, and what they teach beside the weights: which noun suits what is said.

A softmax over the nouns of one passage compares two or three. So the pronoun of each clause is also compared with the
nouns that all clauses of the batch are about, each in its own line: some hundred. The scores are the content scores
q·k / sqrt(d_k) of the head itself, so what they learn, the head knows. In the best case they are, but for a constant,
log p(noun | clause) / p(noun): how well both go together, however frequent the noun is (Oord, Li and Vinyals 2018,
"Representation Learning with Contrastive Predictive Coding"). The clause is read after another line: after its own, the
topic or the noun itself would tell which one it is; by itself, it would not learn to leave aside what is before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.files import packed_lines
from attn_cli.learn.batches import Batch, EncodedSentence, Vocabulary
from attn_cli.learn.relations import RELATIONS
from attn_cli.learn.treebank import Antecedents, Sentence
from data.making.splice import FORMS, Spliced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensor = Any  # PyTorch is not there when types are checked

FAMILY = {
    form: "person" if name in ("he", "she") else name for name, forms in FORMS.items() for form in forms
}


class Apart(NamedTuple):
    """Lines, and clauses after other lines, as one batch, and which noun suits which pronoun."""

    batch: Batch
    pronouns: NDArray[np.intp]  # (m, 2), row and place
    nouns: NDArray[np.intp]  # (m, 2)
    right: NDArray[np.bool_]  # (m, m), whether the pronoun stands for this noun
    competes: NDArray[np.bool_]  # (m, m), whether it could

    @property
    def is_word(self) -> NDArray[np.bool_]:
        """Which places hold a word, (b, n)."""
        return self.batch.is_word

    def loss(self, torch: Any, Q: Tensor, K: Tensor) -> Tensor:
        """Return the mean surprise at the right nouns, from one head's Q and K (b, n, d_k)."""
        q, k = (M[at[:, 0], at[:, 1]] for M, at in ((Q, self.pronouns), (K, self.nouns)))
        z = (q @ k.T / Q.shape[-1] ** 0.5).masked_fill(~torch.from_numpy(self.competes), -1e9)
        right = z.masked_fill(~torch.from_numpy(self.right), -1e9)
        return (z.logsumexp(1) - right.logsumexp(1)).mean()


class SplicedText:
    """A file of spliced passages, read as it is learned from."""

    def __init__(self, path: str) -> None:
        self.name, self.path = visible(Path(path).name), path
        self.read = 0
        self.records = self._endless()

    def _endless(self) -> Iterator[Spliced]:
        """Yield each passage; after the last, the first again."""
        while True:
            before = self.read
            for raw in packed_lines(self.path):
                try:
                    one = json.loads(raw)
                    right, candidates = (
                        [start for start, _ in one[name]] for name in ("antecedents", "candidates")
                    )
                    found = Spliced(
                        tuple(one["tokens"]), one["pronoun"], tuple(right), tuple(candidates), one["clause"]
                    )
                except (ValueError, KeyError, TypeError):
                    raise InputError(
                        f"{self.name} holds other passages.", "Make some with python -m data.making splice."
                    ) from None
                self.read += 1
                yield found
            if self.read == before:
                raise InputError(f"{self.name} holds no passage.")

    def some(self, count: int) -> list[Spliced]:
        """Return the next passages of about so many words."""
        found: list[Spliced] = []
        total = 0
        while total < count:
            found.append(next(self.records))
            total += len(found[-1].tokens)
        return found


def _encoded(words: Vocabulary, tokens: Sequence[str], sentence: Sentence | None = None) -> EncodedSentence:
    """Return tokens as numbers; of a passage, `sentence`, with what its pronoun stands for."""
    taught = [sentence if RELATIONS[name].of_passages else None for name in words.heads]
    known = [RELATIONS["antecedent"].known_rows(one) if one else [False] * len(tokens) for one in taught]
    return EncodedSentence(
        np.array([words.row(word) for word in tokens], dtype=np.intp),
        [words.spelling(word) for word in tokens],
        [RELATIONS["antecedent"].links(one) if one else {} for one in taught],
        np.array(known, dtype=bool),
        (sentence,) if sentence else (),
    )


def together(words: Vocabulary, some: Sequence[Spliced]) -> list[EncodedSentence]:
    """Return passages to learn the weights from."""
    found = []
    for one in some:
        n = len(one.tokens)
        marked = (Antecedents(one.pronoun, one.right),)
        found.append(
            _encoded(words, one.tokens, Sentence(one.tokens, (-1,) * n, ("",) * n, ("",) * n, marked))
        )
    return found


def apart(words: Vocabulary, some: Sequence[Spliced], *_: object) -> Apart:
    """Return lines by themselves, and each clause after the next passage's line; no word is hidden.

    That line has nothing to do with the clause: a pronoun's query is to depend on what is said of it alone.
    """
    m = len(some)
    rows = [_encoded(words, one.tokens[: one.clause]) for one in some]
    others = [some[(i + 1) % m].tokens[: some[(i + 1) % m].clause] for i in range(m)]
    rows += [
        _encoded(words, before + one.tokens[one.clause :]) for before, one in zip(others, some, strict=True)
    ]
    places = [len(before) + one.pronoun - one.clause for before, one in zip(others, some, strict=True)]
    pronouns = np.array([(m + i, place) for i, place in enumerate(places)])
    nouns = np.array([(i, one.right[0]) for i, one in enumerate(some)])
    family = np.array([FAMILY[one.tokens[one.pronoun].lower()] for one in some])
    name = np.array([one.tokens[one.right[0]] for one in some])
    same, competes = name[:, None] == name, family[:, None] == family
    return Apart(words.batch(rows), pronouns, nouns, same & competes, competes)
