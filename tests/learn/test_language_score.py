"""What a language model's heads do: where the right places are, and which head is named for what."""

import pytest

from attn_cli.learn.language_score import HeadMeasures, Measure, names_of, right_places


@pytest.mark.parametrize(
    ("name", "right"),
    [
        *(("previous", {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}), ("itself", {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5})),
        *(("first", {1: 0, 2: 0, 3: 0, 4: 0, 5: 0}), ("same", {3: 0, 4: 1}), ("induction", {3: 1, 4: 2})),
        *(("noun", {2: 1, 3: 1, 4: 1, 5: 4}), ("verb", {3: 2, 4: 2, 5: 2}), ("article", {1: 0, 4: 3})),
    ],
)
def test_a_pattern_finds_the_right_places(name, right):
    words, tags = ["The", "cat", "saw", "the", "cat", "run"], ["DET", "NOUN", "VERB"] * 2
    assert right_places(words, tags)[name] == right


def test_a_head_is_named_for_what_takes_it_furthest_and_the_clearest_comes_first():
    def head(layer, number, **shares):
        best = {"previous": 1.0, "noun": 0.4, "induction": 1.0}
        made = {name: Measure(share, best[name], 9, "dev") for name, share in shares.items()}
        return HeadMeasures(layer, number, made)

    measured = [
        head(0, 0, previous=0.6, noun=0.4, induction=0.0),
        head(0, 1, previous=0.9, noun=0.4, induction=0.0),
        head(1, 0, previous=0.2, noun=0.8, induction=0.0),
        head(1, 1, previous=0.2, noun=0.45, induction=0.1),
    ]
    names = names_of(measured)
    assert list(names.values()) == ["previous-2", "previous", "noun", "1"]
    assert measured[3].pattern is None
