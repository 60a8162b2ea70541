"""attn heads --probe: every head on random tokens that come again, and whether it copies."""

import csv
import io

import numpy as np
import pytest

from attn_cli.models.model_file import bundled
from attn_cli.pipeline import probe
from attn_cli.pipeline.probe import of_stack, roles_on_repeats
from attn_cli.vectors.lookup import open_table
from tests.cli.test_heads import record
from tests.models.checkpoints.by_hand import GPT2, byte_pairs, gpt2, saved, small_bert
from tests.shell import here

LETTERS = ("a", "b", "c", "d", "Ġa", "Ġb")
V, PLACES, D = 6, 12, 24  # a token's number, then its place, then nothing, all as one number among zeros


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Have the vectors of all 40,000 words made once, and not for every run."""
    made, embed = {}, probe.embed

    def kept(words, table, oov, seed, spelling):
        key = table.fingerprint(), oov, seed, id(spelling)
        if key not in made:
            made[key] = embed(words, table, oov, seed, spelling), spelling  # which keeps its id
        return made[key][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "embed", kept)
        yield


@pytest.mark.parametrize("frames", [(0, 0), (1, 0), (1, 1)], ids=str)
def test_patterns_written_down_by_hand_have_a_score_of_one(frames):
    before, after = frames
    n, length = before + 2 * 5 + after, 5
    at = np.arange(n)
    heads = {
        "previous": np.maximum(at - 1, 0),
        "first": at * 0,
        "induction": np.maximum(at - length + 1, 0),
        "same": np.maximum(at - length, 0),
        "itself": at,
    }
    weights = np.array([np.eye(n)[keys] for keys in heads.values()])
    names = [*"<("[:before], *"abcde" * 2, *")"[:after]]
    given = np.tri(n, dtype=bool), names, [name in "<()" for name in names]
    for name, role in zip(heads, roles_on_repeats(weights, *given), strict=True):
        assert role.name == name and role.shares[name] == 1
        assert all(role.shares[other] <= 0.5 for other in ("induction", "same") if other != name)
    even = roles_on_repeats((np.tri(n) / np.tri(n).sum(axis=1, keepdims=True))[None], *given)
    again = range(before + length, before + 2 * length)
    assert even[0].shares["induction"] == pytest.approx(np.mean([1 / (i + 1) for i in again]))


def placed_by_hand(folder):
    """Write a GPT-2 of two layers: 0.0 looks at the token before and copies, 1.0 takes away, the others do nothing."""
    made = {name: np.zeros_like(tensor) for name, tensor in gpt2(d=D, vocabulary=V, places=PLACES).items()}
    for name in made:
        if ".ln_" in name or name == "ln_f.weight":
            made[name][:] = name.endswith("weight")
    made["wte.weight"][:, :V] = np.eye(V)
    made["wpe.weight"][:, V : V + PLACES] = np.eye(PLACES)
    places, d_k = np.arange(PLACES), D // 2
    for layer, sign in ((0, 1), (1, -1)):
        W = made[f"h.{layer}.attn.c_attn.weight"]
        W[V + places[1:], places[:-1]] = 30  # the query of a place is the place before
        W[V + places, D + places] = 30
        W[np.arange(V), 2 * D + np.arange(V)] = 1
        made[f"h.{layer}.attn.c_proj.weight"][np.arange(V), np.arange(V)] = sign
        assert d_k == PLACES
    folder = saved(folder, GPT2 | {"n_embd": D}, made)
    byte_pairs(folder, LETTERS)
    return folder


def test_a_head_that_copies_and_one_that_does_nothing_are_told_apart(tmp_path, tokenizers):
    found = record("--probe", "-m", placed_by_hand(tmp_path / "gpt2"))
    assert (found["kind"], found["length"], found["times"]) == ("heads_by_probe", V, 2)
    assert sorted(found["ids"][:V]) == [*range(V)] and found["ids"][:V] == found["ids"][V:]
    heads = {(one["layer"], one["head"]): one for one in found["heads"]}
    assert heads[0, "0"]["name"] == heads[1, "0"]["name"] == "previous"
    assert heads[0, "0"]["previous"] == pytest.approx(1, abs=1e-3)
    assert heads[0, "0"]["copying"] == pytest.approx(1) and heads[1, "0"]["copying"] == pytest.approx(-1)
    for layer in (0, 1):
        assert heads[layer, "1"]["copying"] is None and heads[layer, "1"]["name"] == "bag-of-words"


def through(rows, gain):
    return (rows - rows.mean(axis=-1, keepdims=True)) * gain


def test_copying_is_what_the_eigenvalues_of_all_words_by_all_words_say(tmp_path, tokenizers):
    tensors = gpt2(3)
    folder = saved(tmp_path / "gpt2", GPT2, tensors)
    byte_pairs(folder)
    for head in record("--probe", "-m", folder)["heads"]:
        place, h = f"h.{head['layer']}.", int(head["head"])
        W_v = tensors[f"{place}attn.c_attn.weight"][:, 16 + 4 * h : 20 + 4 * h]
        W_o = tensors[f"{place}attn.c_proj.weight"][4 * h : 4 * h + 4]
        E, last = tensors["wte.weight"].astype(float), tensors["ln_f.weight"]
        found = np.linalg.eigvals(through(through(E, tensors[f"{place}ln_1.weight"]) @ W_v @ W_o, last) @ E.T)
        assert head["copying"] == pytest.approx(found.sum().real / np.abs(found).sum(), rel=1e-4)


@pytest.mark.parametrize("layer", [0, 2])
def test_copying_of_the_bundled_language_model_is_what_all_words_by_all_words_say(layer):
    stack, draw = bundled("language"), np.random.default_rng(0)
    read, scored = (draw.standard_normal((30, stack.dim)) for _ in range(2))
    layers = stack.encoders
    for h, share in enumerate(of_stack(stack, read, scored)(layer)):
        rows = read @ stack.W_in
        for n, one in enumerate(layers):
            if n == layer:
                head, d_v = one.attention.heads[h], one.attention.heads[h].W_v.shape[1]
                rows = rows @ head.W_v @ one.attention.W_o[h * d_v : (h + 1) * d_v]
            rows = through(through(rows, one.norm_1.gain), one.norm_2.gain)
        found = np.linalg.eigvals(rows @ stack.words.P @ scored.T)
        assert share == pytest.approx(found.sum().real / np.abs(found).sum(), abs=1e-4)


def test_the_bundled_language_model_has_induction_heads_that_copy_and_a_seed_chooses_the_words():
    found = record("--probe")
    assert found["source"] == "language" and found["ids"] is None and found["notes"] == []
    assert len(set(found["tokens"])) == 50 and found["tokens"][:50] == found["tokens"][50:]
    named = {one["head"]: one for one in found["heads"]}
    for head, one in named.items():
        assert (one["name"] == "induction") == head.startswith("induction")
        if head.startswith("induction"):
            assert one["copying"] > 0.99
    assert named["previous"]["name"] == "previous"
    rows = [*csv.DictReader(io.StringIO(here("heads", "--probe", "-f", "csv", "--layer", "2").out))]
    assert [row["head"] for row in rows] == [*bundled("language").head_names(2)]
    assert (
        float(rows[0]["copying"]) == pytest.approx(named[rows[0]["head"]]["copying"])
        and rows[0]["next"] == ""
    )
    out = here("heads", "--probe", "--seed", "1", "--width", "80").out
    ranked = next(line for line in out.splitlines() if line.startswith("induction"))
    assert ranked.split()[1].startswith("2.induction") and max(map(len, out.splitlines())) <= 80
    for said in ("50 random words, 2 times, seed 1", "copying", "Rows are layers."):
        assert said in out
    assert record("--probe", "--seed", "1", "-p", "roles")["tokens"] != found["tokens"]
    assert {*found["tokens"]} <= {
        word.decode() for block in open_table("word2vec").word_blocks() for word in block
    }


def test_an_encoder_has_scores_of_both_sides_and_a_model_without_words_says_why_it_does_not_copy(
    tmp_path, tokenizers
):
    found = record("--probe", "-m", small_bert(tmp_path / "bert"))
    assert found["tokens"][0] == "[CLS]" and found["tokens"][-1] == "[SEP]" and found["length"] == 5
    assert not {"[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]"} & {*found["tokens"][1:-1]}
    for head in found["heads"]:
        assert head["induction"] is None and head["next"] is not None and -1 <= head["copying"] <= 1
    out = here("heads", "--probe", "-m", small_bert(tmp_path / "bare", head=False), "--width", "80").out
    assert "no language-model head in its files: no copying" in " ".join(out.split())
    assert "copying  " not in out and max(map(len, out.splitlines())) <= 80
    assert record("--probe", "-p", "roles")["notes"] == ["roles scores no words: no copying."]
