"""Likeness, the default of cross: a word's strongest key is its counterpart in other words.

`likeness.tsv` has pairs of sentences with their counterparts, marked by hand; nothing was chosen on them.
"""

from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings, trace_cross
from attn_cli.io.array_files import read_safetensors
from attn_cli.io.files import data_path
from data.making.likeness import best_distance, query_weights, read_pairs, try_on
from tests.shell import ROOT, record

PAIRS = read_pairs(str(Path(__file__).with_suffix("").with_name("likeness.tsv")))
TUNED_ON = read_pairs(f"{ROOT}/data/making/likeness.tsv")
CAT = ("A cat sat on the rug", "The feline rested on a mat")


def u():
    return read_safetensors(data_path("likeness.safetensors"))[0]["U"].astype(float)


def found_and_weight(settings=None):
    rows = []
    for pair in PAIRS:
        weights = trace_cross(pair.text, pair.context, settings).shown.weights
        rows += [(weights[i].argmax() == j, weights[i, j]) for i, j in pair.marked]
    return np.mean(rows, axis=0)


def test_nine_of_ten_words_find_their_counterpart_and_give_it_most_of_their_attention_as_is_told():
    assert len(PAIRS) >= 60
    found, weight = found_and_weight()
    assert found >= 0.9 and weight >= 0.7
    others = [found_and_weight(Settings(projection=name))[0] for name in ("identity", "roles")]
    assert found > max(others) + 0.04
    facts = trace_cross(*CAT).learned
    assert facts.accuracy == pytest.approx(found, abs=1e-4)
    assert facts.baseline == pytest.approx(best_distance(PAIRS), abs=1e-4)


def test_no_sentence_to_measure_with_was_there_to_choose_with_where_the_kind_of_word_helps():
    mine, theirs = ({tuple(side) for pair in pairs for side in pair[:2]} for pairs in (PAIRS, TUNED_ON))
    assert not mine & theirs
    without, with_kind = (try_on(TUNED_ON, query_weights(u(), 5, b)) for b in (0, 4))
    assert with_kind.found > without.found + 0.04 and with_kind.surprise < without.surprise


def test_the_scores_follow_by_hand_from_the_vectors_and_u_and_a_word_without_a_vector_from_its_spelling():
    trace = trace_cross(*CAT)
    q = 5 * (trace.x_query + 4 * (trace.x_query @ u()) @ u().T)
    assert np.allclose(trace.shown.scaled_scores, q @ trace.x_key.T / 10)
    assert np.array_equal(trace.shown.k, trace.shown.v)
    trace = trace_cross("The sculptor chiselled a statue", "A craftsman carved the figure")
    assert (trace.unknown, trace.embedding.oov) == (("chiselled",), "subword")
    assert trace.shown.weights[2].argmax() == 2


ASKED = {"likeness": "|--head likeness", "roles": "--head subject|--head all|-p roles", "random": "-e random"}
ASKED["identity"] = "-p identity|--heads 2|--positions sinusoidal"


@pytest.mark.parametrize("name", ASKED)
def test_what_is_asked_for_comes_before_likeness(name):
    for options in ASKED[name].split("|"):
        assert record("cross", *CAT, *options.split())["projection"]["name"] == name, options


def test_it_is_for_one_text_too_and_names_what_its_output_is_near():
    found = record("explain", CAT[0], "-p", "likeness", "-q", "cat")
    known = {"source": "learned", "name": "likeness", "layout": "in-out", "layer": 0}
    assert found["projection"] == known | dict.fromkeys(("seed", "x_is_normed", "kv_heads"))
    assert "cat" in [one["word"] for one in found["output_words"][0]]
