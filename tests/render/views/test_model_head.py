"""A pretrained model's head on the screens: its X and W, its turned vectors, its scale and its soft cap, by hand."""

import math
import re

import numpy as np
import pytest

from tests.alike import FLOAT32
from tests.models.checkpoints.by_hand import GEMMA2, byte_pairs, gemma2, saved, small_gpt2, word_pieces
from tests.models.checkpoints.test_known import written
from tests.models.checkpoints.test_parity import CASES, made
from tests.shell import here, record, refused, told

pytestmark = pytest.mark.usefixtures("tokenizers")
IDS = {"d": 3, "a": 0, "b": 1, "c": 2}
NUMBER = r"(-?\d+\.?\d*(?:e[+-]\d+)?)"


@pytest.fixture(scope="module")
def capped(tmp_path_factory):
    """A Gemma 2 of one layer, whose head 1 can be checked with pencil and paper."""
    folder = saved(tmp_path_factory.mktemp("models") / "gemma2", GEMMA2, gemma2())
    byte_pairs(folder)
    return folder


def by_hand(head):
    made = gemma2()
    rows = made["embed_tokens.weight"][[IDS[letter] for letter in "dabc"]].astype(float) * math.sqrt(4)
    gain = 1 + made["layers.0.input_layernorm.weight"].astype(float)
    X = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True)) * gain
    W_q, W_k = (made[f"layers.0.self_attn.{letter}_proj.weight"].astype(float) for letter in "qk")
    Q, K = X @ W_q[2 * head : 2 * head + 2].T, X @ W_k.T
    q, k = (M @ [1, 1j] * np.exp(1j * np.arange(len(M))) for M in (Q, K))  # rotated: place p by p radians
    content, total = Q @ K.T * 0.5, np.outer(q, k.conj()).real * 0.5
    return X, Q, content, total - content, 2 * np.tanh(total / 2)


def explained(folder, *args, width="80"):
    return here("explain", "dabc", "-m", folder, "--head", "1", *args, "--width", width).out


def row_of(screen, key):
    line = next(line for line in screen.splitlines() if line.startswith(f"{key} "))
    return [float(cell) for cell in line.split()[1:7]]


@pytest.mark.parametrize("more", [(), ("--steps",)])
def test_the_row_by_hand_can_be_checked_from_the_files_of_the_model(more, capped):
    screen = explained(capped, "-q", "c", *more)
    X, Q, content, distance, final = by_hand(1)
    exps = np.exp(final[3])
    for j, key in enumerate("dabc"):
        expected = content[3, j], distance[3, j], content[3, j] + distance[3, j], final[3, j]
        assert row_of(screen, key) == pytest.approx([*expected, exps[j], exps[j] / exps.sum()], abs=6e-5)
    said = " ".join(screen.split())
    assert "capped = 2 tanh(sum / 2)" in said and "content = q·k × 0.5" in said
    assert "distance = q'·k' × 0.5 - content" in said
    for name, vector in (("x", X[3]), ("q = x W_q", Q[3])):
        numbers = re.search(rf"{name} = \[([^]]*)\]", said)[1].split()
        assert [*map(float, numbers)] == pytest.approx(vector, abs=6e-5)
    worked = re.findall(rf"capped = 2 tanh\({NUMBER} / 2\) = {NUMBER}", said)
    assert worked and all(2 * math.tanh(float(s) / 2) == pytest.approx(float(c), abs=2e-4) for s, c in worked)


def test_the_cap_is_a_step_and_the_temperature_divides_what_it_leaves(capped):
    said = " ".join(explained(capped, "--only", "position,cap,mask,w,q", "-q", "c").split())
    content, distance, final = by_hand(1)[2:]
    total = content + distance
    assert "capped = 2 tanh((scaled + distance) / 2)" in said and "masked = capped where allowed" in said
    told = re.search(rf'The score of "c" and "(.)", {NUMBER}, becomes {NUMBER}: none gets beyond 2', said)
    j = "dabc".index(told[1])
    assert (float(told[2]), float(told[3])) == pytest.approx((total[3, j], final[3, j]), abs=6e-3)
    assert "Head 1 shares W_k and W_v, so keys and values too, with head 0" in said
    assert "went through the layer's norm" in explained(capped, "--only", "x").replace("\n", " ")
    assert "rotary positions" in said and "q' and k' are q and k after rotation by position" in said
    screen, exps = explained(capped, "-q", "c", "-t", "0.5"), np.exp(2 * final[3])
    for j, key in enumerate("dabc"):
        expected = [2 * final[3, j], exps[j], exps[j] / exps.sum()]
        assert row_of(screen, key)[3:] == pytest.approx(expected, abs=6e-5)
    assert "capped = 4 tanh(sum / 4)" in " ".join(screen.split())
    title = explained(capped, "--steps", "-t", "0.5").splitlines()[1]
    assert title.strip() == "weights = softmax(2 tanh((q·k × 0.5 + distance) / 2) / 0.5)"
    at = record("self", "dabc", "-m", capped)["diagnostics"][3]["temperature_95"]
    sharp = record("self", "dabc", "-m", capped, "-t", repr(at))
    assert max(sharp["weights"][3]) == pytest.approx(0.95, abs=FLOAT32)
    for one in record("explain", "dabc", "-m", capped, "--head", "1", "-q", "c")["because"]:
        i, j = one["winner_index"], one["rival_index"]
        assert one["content"] == pytest.approx(content[3, i] - content[3, j], abs=1e-5)
        assert one["distance"] == pytest.approx(distance[3, i] - distance[3, j], abs=1e-5)


@pytest.mark.parametrize(("head", "other", "pair"), [(0, 1, 0), (1, 0, 0), (2, 3, 1), (3, 2, 1)])
def test_heads_side_by_side_share_keys_and_values_where_there_are_several_pairs(head, other, pair, tmp_path):
    more = {"num_attention_heads": 4, "num_key_value_heads": 2}
    folder = saved(tmp_path / "gemma2", GEMMA2 | more, gemma2(heads=4, pairs=2))
    byte_pairs(folder)
    said = " ".join(here("explain", "dabc", "-m", folder, "--head", str(head), "--only", "w,q").out.split())
    told = f"Head {head} shares W_k and W_v, so keys and values too, with head {other} (grouped queries: key head"
    assert f"{told} {pair} of 0 to 1)." in said


def test_the_mask_lab_draws_what_the_softmax_gets_and_learned_places_are_in_the_vectors(capped, tmp_path):
    screen = here("self", "dabc", "-m", capped, "--show", "mask", "--width", "100")
    assert screen.code == 0 and "capped" in screen.out
    said = " ".join(explained(small_gpt2(tmp_path / "gpt2"), "-q", "c").split())
    assert "by match, its place included (content)" in said and "distance" not in said
    assert "q = x W_q + b_q = [" in said and "x = [" in said
    assert "the words' places are part of it" in said


def test_what_the_first_vectors_are_made_of_is_said_and_a_rival_is_a_token_of_the_context(tmp_path):
    place, more = " and its place", ", its place and its segment"
    for name, parts in (("t5", ""), ("bert", more), ("bart", place), ("marian", place)):
        word_pieces(folder := written(name, tmp_path / name))
        said = " ".join(told("explain", "the cat", "-m", folder, "--layer", "0", "--only", "x").split())
        assert re.search(rf"it is made of its token{parts}(\.|, and went)", said)
    said = refused("cross", "the cat", "walking home", "-m", folder, "-q", "cat", "--versus", "cat")
    assert "no token 'cat' to look at. The tokens are [CLS], walk, ##ing, home, [SEP];" in said


def told_of(family, transformers, folder, query, width):
    """What `attn explain` says of a made model's head at temperature 2, and the record with its steps."""
    made(transformers, CASES[family], 1, folder)
    word_pieces(folder)
    args = ("the cat walks home", "-m", str(folder), "--head", "1", "-t", "2")
    return told("explain", *args, "-q", query, "--width", width), record("self", *args, "--steps")


def test_the_terms_of_deberta_stand_apart_in_a_row_by_hand(transformers, tmp_path):
    """Content, the query with the distance's key, the key with its query: their sum is what the softmax gets."""
    out, found = told_of("deberta-v2", transformers, tmp_path, "cat", "80")
    assert re.search(r"^key +content +q·place +k·place +sum ", out, re.M)
    distances = found["heads"][0]["position_scores"][2]
    for key, distance in zip(found["key_tokens"], distances, strict=True):
        content, of_query, of_key, total, *_ = row_of(out, key)
        assert content + of_query + of_key == pytest.approx(total, abs=2e-4)
        assert of_query + of_key == pytest.approx(distance, abs=2e-4) and abs(of_query) > 1e-3 < abs(of_key)


def test_what_bloom_adds_for_the_distance_is_a_fixed_slope(transformers, tmp_path):
    """Each place back costs the head its slope, and nothing of it is said to be learned."""
    out, found = told_of("bloom", transformers, tmp_path, "home", "200")
    told = "a slope of its own, here -0.0625, times the places back, fixed and not learned"
    assert f"distance: {told}, and divided by 2" in out
    assert f"each head adds {told} (ALiBi, Press et al. 2022)" in out
    away = np.arange(len(found["key_tokens"]))
    expected = -0.0625 * (away[:, None] - away) / 2
    np.testing.assert_allclose(found["heads"][0]["position_scores"], expected, atol=1e-6)
