"""The n-gram model that a language model is measured against, beside numbers worked out by hand."""

import numpy as np
import pytest

from tests.bench.kneser_ney import KneserNey, perplexity


def sentences(*texts):
    return [np.array([int(word) for word in text.split()], dtype=np.int64) for text in texts]


def test_a_bigram_model_is_that_worked_out_by_hand():
    """Words 0 a, 1 b, 2 c; the text: a b, a b, a c. `^` opens a sentence.

    Bigrams: ^a 3, ab 2, ac 1. D = n1 / (n1 + 2 n2) = 1 / (1 + 2) = 1/3.
    Words by what they follow: a 1 (^), b 1 (a), c 1 (a): n2 = 0, so D = 1/2, and P(w) = 1/2 / 3 + (3 x 1/2 / 3) / 3.
    P(b | a) = (2 - 1/3) / 3 + (2 x 1/3 / 3) x 1/3 = 5/9 + 2/27 = 17/27.
    """
    model = KneserNey(sentences("0 1", "0 1", "0 2"), 3, n=2, modified=False)
    first, second = model.probabilities(np.array([0, 1]))
    assert first == pytest.approx((3 - 1 / 3) / 3 + (1 / 3) / 3 * (1 / 3), abs=1e-15)
    assert second == pytest.approx(17 / 27, abs=1e-15)
    assert model.probabilities(np.array([0, 2]))[1] == pytest.approx(2 / 9 + 2 / 27, abs=1e-15)
    # After b nothing was seen: the words' own shares.
    assert model.probabilities(np.array([1, 2]))[1] == pytest.approx(1 / 3, abs=1e-15)
    assert perplexity(model, sentences("0 1")) == pytest.approx((first * second) ** -0.5)


def test_a_word_that_follows_one_word_alone_is_unlikely_after_others():
    """Words 0 san, 1 francisco, 2 the, 3 cat, 4 dog: francisco is frequent, and follows san alone."""
    model = KneserNey(sentences(*["0 1"] * 5, "2 3", "2 4", "4 3", "3 4", "0 3"), 5, n=2, modified=False)
    after_the = [model.probabilities(np.array([2, word]))[1] for word in (1, 3)]
    assert after_the[0] < after_the[1]


@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_after_any_words_the_probabilities_of_all_words_sum_to_one(n, modified):
    draw = np.random.default_rng(n)
    text = [draw.integers(0, 6, draw.integers(1, 9)) for _ in range(60)]
    model = KneserNey(text, 8, n, modified)
    for length in range(6):
        before = draw.integers(0, 8, length)
        total = sum(model.probabilities(np.append(before, word))[-1] for word in range(8))
        assert total == pytest.approx(1, abs=1e-12)


def test_a_longer_context_helps_where_the_text_follows_it():
    text = sentences(*["0 1 2 3", "4 1 2 5"] * 20)
    fits = [perplexity(KneserNey(text, 6, n), text) for n in (1, 2, 3, 4)]
    assert fits == sorted(fits, reverse=True) and fits[3] < 1.5
