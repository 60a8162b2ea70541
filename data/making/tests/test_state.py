"""A training that is interrupted: the same command goes on where it was, and ends in the same model."""

import numpy as np
import pytest

from attn_cli.errors import InputError
from attn_cli.io.array_files import read_safetensors
from data.making import state, train_deep, train_language
from data.making.pretrain import pretrain_file
from data.making.settings import DeepTraining, LanguageTraining, Pretraining
from tests.parsed import conllu

pytestmark = pytest.mark.usefixtures("torch")
SIZES = {"layers": 2, "heads": 2, "width": 16, "wide": 16, "reach": 3, "endings": 9}
LANGUAGE = LanguageTraining(**SIZES, words=9000, corrected=20, batch=300, common=20, sampled=30, bits="16")
LOWER = Pretraining(**SIZES, words=9000, guesses=50, itself=20, batch=300)
DEEP = DeepTraining(**SIZES, dim=4, epochs=4, batch=100, itself=20)
ANIMALS, PLACES = ("cat", "dog", "fox", "hen"), ("house", "field", "wood")
LINES = [f"The {animal} sleeps in the {place}." for animal in ANIMALS for place in PLACES] * 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text, and a treebank."""
    made = tmp_path_factory.mktemp("state")
    (made / "text.txt").write_text("\n".join(LINES) + "\n")
    sentences = ("The/DET/2/det dog/NOUN/3/nsubj ate/VERB/0/root", "Cats/NOUN/2/nsubj eat/VERB/0/root")
    (made / "train.conllu").write_text(conllu(*sentences) * 20)
    return made


def language(folder, output, report, **changes):
    settings = LanguageTraining(**{**vars(LANGUAGE), **changes})
    train_language.train_file([str(folder / "text.txt")], output, None, "word2vec", settings, report)


def pretrain(folder, output, report):
    pretrain_file([str(folder / "text.txt")], output, "word2vec", LOWER, report, lambda words, loss: None)


def train(folder, output, report):
    banks = [str(folder / "train.conllu")]
    train_deep.train_file(banks, output, [], "word2vec", DEEP, report, lambda epoch: None)


@pytest.mark.parametrize(
    ("learn", "phase", "from_share"),
    [(language, "learning", 0.5), (pretrain, "masked words", 0.5), (train, "epoch 3 of 4", 0)],
)
def test_the_same_command_goes_on_where_an_interrupted_one_was(learn, phase, from_share, folder, monkeypatch):
    whole, cut = (str(folder / f"{learn.__name__}-{name}.safetensors") for name in ("whole", "cut"))
    learn(folder, whole, lambda stage: None)
    monkeypatch.setattr(state, "EVERY", 0.0)
    stages = []

    def interrupt(stage):
        if stage.phase == phase and stage.done >= from_share:
            raise KeyboardInterrupt

    learn(folder, cut, interrupt)
    assert (folder / f"{cut}.state").exists()
    learn(folder, cut, stages.append)
    gone_on = [one for one in stages if one.phase == phase]
    assert min(one.done for one in gone_on) > 0 and not any(one.phase == "epoch 1 of 4" for one in stages)
    assert min(one.done for one in gone_on) >= from_share
    assert not (folder / f"{cut}.state").exists()
    expected, found = read_safetensors(whole)[0], read_safetensors(cut)[0]
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name].astype(float), wanted.astype(float), atol=2e-3, err_msg=name)


@pytest.mark.parametrize("other", [{"seed": 1}, {"rate": 0.02}])
def test_the_state_of_another_training_is_refused(other, folder, monkeypatch):
    monkeypatch.setattr(state, "EVERY", 0.0)
    output = str(folder / f"{'-'.join(other)}.safetensors")

    def interrupt(stage):
        if stage.phase == "learning":
            raise KeyboardInterrupt

    language(folder, output, interrupt)
    with pytest.raises(InputError, match="with other texts or settings"):
        language(folder, output, lambda stage: None, **other)
    (folder / f"{output}.state").write_bytes(b"no state")
    with pytest.raises(InputError, match="is not the state of a training"):
        language(folder, output, lambda stage: None)
