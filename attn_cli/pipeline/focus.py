"""Which row a screen works by hand where none is asked for: the main verb, else that of the strongest link."""

from __future__ import annotations

import numpy as np

from attn_cli.core.head_weights import HeadWeights
from attn_cli.core.heads import Links
from attn_cli.io.array_types import Array
from attn_cli.models.encoder import weights_of
from attn_cli.pipeline.inputs import Inputs

ROOT_HEAD = "head"
LEAST = 1e-12  # a weight, so that each word may be governed by each
EARLIER = 4  # words, after which a root counts 1/e: main clauses tend to come first
MOST_WORDS = 500  # the work grows with their cube


def sentence_root(root_head: HeadWeights, inputs: Inputs) -> int | None:
    """Return the root of the sentence, usually the main verb, by the head "head" (word to governor).

    None in a long text.
    """
    own, X = inputs.query.own, inputs.query.X
    words = [i for i in own if any(map(str.isalnum, inputs.query.tokens[i]))]
    if X is None or not words or len(own) > MOST_WORDS:
        return None
    share = root_shares(weights_of(root_head, X[own.start : own.stop])) * np.exp(
        -np.arange(len(own)) / EARLIER
    )
    return max(words, key=lambda i: float(share[i - own.start]))


def root_shares(weights: Array) -> Array:
    """Return each word's share (n,) as the root, over all trees, of weights (n, n) from a word to its governor.

    A tree counts as the product of its words' weights, its root's being what that word gives itself. All trees are
    summed by one determinant (Koo et al. 2007, "Structured Prediction Models via the Matrix-Tree Theorem", 3.2).
    """
    arcs = weights + LEAST
    roots = arcs.diagonal().copy()
    np.fill_diagonal(arcs, 0.0)
    laplacian = np.diag(arcs.sum(axis=1)) - arcs
    laplacian[:, 0] = roots
    shares: Array = roots * np.linalg.inv(laplacian)[0]
    return shares


def row_of_strongest_link(links: Links, inputs: Inputs) -> int:
    """Return the query of the strongest link to another word; zeros, for words without a vector, score all alike."""
    best, row = -1.0, 0
    unknown = set(inputs.unknown)
    for i, token in enumerate(inputs.query.tokens):
        if token in unknown or i in inputs.query.padding:
            continue
        for j, weight in zip(links.keys[i], links.weights[i], strict=True):
            key = inputs.key.tokens[j] if j >= 0 else token
            if key.casefold() != token.casefold() and key not in unknown:
                if weight > best:
                    best, row = float(weight), i
                break
    return row
