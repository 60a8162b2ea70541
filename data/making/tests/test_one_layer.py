"""One layer that learns from treebanks, and from a deep model on running text."""

from dataclasses import replace

import numpy as np
import pytest

from attn_cli import Settings, trace_self
from attn_cli.models.model_file import read_model
from data.making import one_layer, train_deep
from data.making.settings import OneLayerTraining
from data.making.tests.test_state import DEEP, folder  # noqa: F401

pytestmark = pytest.mark.usefixtures("torch")
SMALL = OneLayerTraining(
    dim=8, epochs=3, batch=200, endings=9, itself=20, words=400, afterwards="1", bits="16"
)


@pytest.fixture(scope="module")
def learn(folder):
    """A function that learns one layer with other settings, and returns it and its training's facts."""
    banks, deep = [str(folder / "train.conllu")], str(folder / "deep.safetensors")
    train_deep.train_file(banks, deep, [], "word2vec", DEEP, lambda stage: None, lambda epoch: None)

    def made(**changes):
        output, texts = str(folder / "one.safetensors"), [str(folder / "text.txt")]
        one_layer.train_file(
            banks,
            output,
            [],
            "word2vec",
            replace(SMALL, **changes),
            lambda stage: None,
            lambda epoch: None,
            deep,
            texts,
        )
        return read_model(output), output

    return made


def test_every_words_spelling_adds_to_its_vector_and_capitals_change_nothing(learn):
    stack, path = learn()
    assert stack.layers == 1 and stack.spelling.always and stack.facts["imitated_on"]["words"] >= 400
    one, other = (trace_self(text, Settings(projection=path)) for text in ("The Dog ate", "the dog ate"))
    assert one.learned.spelled and np.array_equal(one.shown.weights, other.shown.weights)


def test_the_weights_of_the_deep_model_are_learned_on_running_text(learn, monkeypatch):
    losses = {}
    for words in (400, 2000):
        seen = []
        monkeypatch.setattr(one_layer.Pupil, "learn", _telling(seen))
        learn(words=words)
        losses[words] = [loss for is_imitated, loss in seen if is_imitated]
    assert len(losses[2000]) > 3 * len(losses[400]) > 0
    assert np.mean(losses[2000][-10:]) < np.mean(losses[2000][:10])


def test_a_word_counts_less_for_itself_afterwards_in_the_heads_that_are_named(learn):
    sentence = "The dog ate"
    usual, less = [
        trace_self(sentence, Settings(projection=learn(afterwards=some)[1], head="all"))
        for some in ("1,relations=1,head=1", "1,relations=1,head=1,subject=0.5")
    ]
    for old, new in zip(usual.heads, less.heads, strict=True):
        ratio = old.weights[0, 0] / old.weights[0, 1] / (new.weights[0, 0] / new.weights[0, 1])
        assert ratio == pytest.approx(2 if old.name == "subject" else 1, rel=0.02)


def _telling(seen):
    """Return `learn` of a pupil that also tells whether the batch was a teacher's, and its loss."""

    def learn(self, batch, rate):
        loss = super(one_layer.Pupil, self).learn(batch, rate)
        seen.append((batch.is_imitated, loss))
        return loss

    return learn
