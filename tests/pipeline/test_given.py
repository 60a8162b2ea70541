"""Matrices or scores that are given, with axes for heads and a batch, masks, biases, a scale: as `attend` has them."""

import json
from itertools import product

import numpy as np
import pytest

from attn_cli import Settings, attend
from attn_cli.errors import AttnError, InputError, UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.pipeline.records import record
from tests.shell import here, refused, told

DRAW = np.random.default_rng(11)
Q, K, V = (DRAW.standard_normal(shape) for shape in ((4, 3, 2), (4, 5, 2), (4, 5, 3)))
RAW, ROOT = Q @ K.swapaxes(-1, -2), 1 / 2**0.5
X, W = DRAW.standard_normal((3, 4)), [DRAW.standard_normal(shape) for shape in ((4, 8), (4, 4), (4, 4))]
B = [DRAW.standard_normal(n) for n in (8, 4, 4)]
MASK, OTHER = (DRAW.random((4, 3, 5)) < 0.6 for _ in range(2))
MASK[:, :, 0] = True
BIAS = DRAW.standard_normal((4, 3, 5))
QKV = {"Q": Q, "K": K, "V": V}
GIVEN = QKV | {"mask": MASK, "bias": BIAS}
CAPPED, CAPPED_AS = QKV | {"scale": 0.3, "softcap": 1.5}, attend(Q, K, V, scale=0.3, softcap=1.5)
SCORED = {"scores": RAW, "V": V}
TRI = np.tri(3, 5, dtype=bool)
MASKED = np.where(TRI, RAW * ROOT, -np.inf)
BLANK = np.where(TRI, RAW * ROOT, None).tolist()
STRETCHED = ((4, 3, 5), (4, 1, 5), (1, 3, 5), (1, 1, 5), (3, 5), (1, 5), (3, 1), (1, 1, 1, 5), (1, 4, 3, 5))


def traced(settings=None, **given):
    return trace_matrices("compute", given_from(given, "given"), settings or Settings(head="all"))


def agrees(trace, right):
    assert np.allclose([head.weights for head in trace.heads], right[0], atol=1e-12)
    assert np.allclose([head.output for head in trace.heads], right[1], atol=1e-12)


@pytest.fixture
def file(at):
    def write(name="given.json", **given):
        (at / name).write_text(json.dumps(given, default=np.ndarray.tolist))
        return name

    return write


def beside(M):
    return np.concatenate([*M], 1)


def by_head(M, heads):
    return np.stack(np.split(M, heads, axis=1))


def those_that_share():
    """Heads of Q that share those of K and V: with an axis of their own, side by side, and projected from X."""
    for n in (1, 2):
        right = attend(Q, K[:n], V[:n], grouped=True)
        yield QKV | {"K": K[:n], "V": V[:n]}, right, f"4 heads of Q share {n} head"
        flat = {"Q": beside(Q), "K": beside(K[:n]), "V": beside(V[:n])}
        yield flat | {"heads": 4, "kv_heads": n}, right, f"4 heads of Q share {n} head"
    parts = [by_head(X @ M + b, n) for M, b, n in zip(W, B, (4, 2, 2), strict=True)]
    biases = dict(zip(("b_q", "b_k", "b_v"), B, strict=True)) | {"X": X, "heads": 4, "kv_heads": 2}
    for layout, as_given in (("in-out", W), ("out-in", [M.T for M in W])):
        names = dict(zip(("W_q", "W_k", "W_v"), as_given, strict=True))
        yield names | biases | {"layout": layout}, attend(*parts, grouped=True), ""
    stacks = [by_head(M, n) for M, n in zip(W, (4, 2, 2), strict=True)]
    for layout, as_given in (({}, stacks), ({"layout": "out-in"}, [M.swapaxes(1, 2) for M in stacks])):
        names = dict(zip(("W_q", "W_k", "W_v"), as_given, strict=True))
        yield {"X": X} | names | layout, attend(*(X @ M for M in stacks), grouped=True), ""


def those_that_stretch():
    for shape in STRETCHED:
        mask, bias = DRAW.random(shape) < 0.7, DRAW.standard_normal(shape)
        mask[..., 0] = True
        for name, M in (("mask", mask), ("bias", bias)):
            right = attend(Q, K, V, **{name: M.reshape(shape[-3:])})
            yield QKV | {name: M}, right, ""
            yield QKV | ({name: M.tolist()} if name == "mask" else {"position_scores": M}), right, ""


UNSCALED = "used unscaled"
ALIKE = [  # what is given, the weights and output that it has, and what a note says
    (QKV, attend(Q, K, V), ""),
    ({name: M[None] for name, M in QKV.items()}, attend(Q, K, V), ""),  # a batch of one
    (CAPPED, CAPPED_AS, ""),
    (CAPPED | {"scale": np.array(0.3), "softcap": np.array([1.5])}, CAPPED_AS, ""),
    (SCORED | {"scale": ROOT}, attend(Q, K, V), ""),
    (SCORED, attend(Q, K, V, scale=1), UNSCALED),
    (QKV | {"score": "dot"}, attend(Q, K, V, scale=1), ""),
    ({"scaled_scores": RAW * ROOT, "V": V, "scale": ROOT}, attend(Q, K, V), "scaled already"),
    ({"masked_scores": MASKED, "V": V}, attend(Q, K, V, TRI), ""),
    ({"masked_scores": BLANK, "V": V}, attend(Q, K, V, TRI), ""),
    ({"masked_scores": MASKED, "V": V, "mask": OTHER}, attend(Q, K, V, TRI & OTHER), ""),
    (SCORED | {"scale": ROOT, "mask": "causal", "bias": BIAS}, attend(Q, K, V, "causal", BIAS), ""),
    (SCORED | {"scale": ROOT, "softcap": 0.7}, attend(Q, K, V, softcap=0.7), ""),
    (SCORED | {"temperature": 3}, attend(Q, K, V, scale=1 / 3), ""),
    *((SCORED | {"V": one}, attend(Q, K, np.stack([V[0]] * 4), scale=1), UNSCALED) for one in (V[0], V[:1])),
    *those_that_share(),
    *those_that_stretch(),
]


@pytest.mark.parametrize(("given", "right", "note"), ALIKE)
def test_what_is_given_has_the_weights_and_the_output_of_attend(given, right, note):
    found = traced(**given)
    agrees(found, right)
    assert any(note in one for one in found.notes) or not note
    if "masked_scores" in given and "mask" not in given:
        assert (found.mask == TRI).all() and found.mask_name == "given"
        assert traced(**given, mask="causal").mask_name == "causal"  # which hides all that is blank


@pytest.mark.parametrize("item", [0, 1])
def test_an_item_of_a_batch_is_taken(item):
    both = {"Q": np.stack([Q, -Q]), "K": np.stack([K, 2 * K]), "V": np.stack([V, V])}
    both |= {"mask": np.stack([MASK, ~MASK | MASK]), "position_scores": np.stack([BIAS, 0 * BIAS])}
    scored = {"scores": np.stack([RAW, -RAW]), "V": np.stack([V, V])}
    for given, right in (
        (both, attend(*(M[item] for M in both.values()))),
        (scored, attend((Q, -Q)[item], K, V, scale=1)),
    ):
        agrees(trace_matrices("compute", given_from(given, "given", item), Settings(head="all")), right)


def test_a_batch_of_several_and_an_item_that_there_is_not_name_the_option(file):
    assert np.allclose(traced(X=X[None]).weights, attend(X, X, X)[0])
    for given, batch in ((X[None], 1), (X[None], -1), (X, 0)):
        with pytest.raises(UsageError) as error:
            given_from({"X": given}, "given", batch)
        assert error.value.option == "--batch"
    name = file(X=[X.tolist(), (2 * X).tolist()])
    assert here("compute", name).code == 65 and here("compute", name, "--batch", "2").code == 2
    assert np.allclose(record("compute", name, "--batch", "1")["weights"], attend(2 * X, 2 * X, 2 * X)[0])


def test_a_shown_head_has_its_own_mask_and_the_mean_that_of_any():
    for h in range(4):
        found = traced(Settings(head=str(h)), **QKV, mask=MASK)
        assert (found.mask == MASK[h]).all()
        assert (found.weights[~MASK[h]] == 0).all()
    every = traced(**QKV, mask=MASK)
    assert (np.isnan([every.visible_weights(head) for head in every.heads]) == ~MASK).all()
    assert ([(head.links.keys >= 0).sum(axis=1) for head in every.heads] == MASK.sum(axis=2)).all()
    found = traced(Settings(head="mean"), **QKV, mask=MASK)
    assert (found.mask == MASK.any(axis=0)).all()
    assert np.allclose(found.weights, attend(Q, K, V, MASK)[0].mean(axis=0))


def test_padding_is_hidden_beside_a_mask_of_each_head():
    mask = np.ones((2, 3, 3), bool)
    mask[1] = np.tri(3)
    found = traced(Settings(head="all", pad=5), X=X, heads=2, mask=mask)
    padding = np.zeros((8, 8), bool)
    padding[:, found.pad_keys.start : found.pad_keys.stop] = True
    for head in found.heads:
        assert (head.weights[padding] == 0).all()
    assert (found.heads[1].weights[:3, :3][~mask[1]] == 0).all()


def test_without_values_there_are_weights_and_no_output(file):
    found = traced(scores=RAW[0])
    assert np.allclose(found.weights, attend(Q[0], K[0], V[0], scale=1)[0]) and found.output is None
    name = file(scores=RAW[0])
    shown = record("compute", name, "--steps")
    assert shown["output"] is None and shown["heads"][0]["v"] is None
    for options in ("", "--steps", "-q q1 --by-hand all", "-f html", "-f latex", "-f csv"):
        assert here("compute", name, *options.split()).code == 0
    assert "output of" not in told("compute", name, "-q", "q1")
    found = traced(Settings(head="mean"), scores=RAW)
    assert found.output is found.heads[0].q is found.heads[0].k is None
    assert np.allclose(found.weights, attend(Q, K, V, scale=1)[0].mean(axis=0))
    assert traced(Settings(), scores=DRAW.standard_normal((1100, 1000))).condensed
    for keys, is_second in (("abc", False), ("abd", True)):
        found = traced(scores=np.eye(3), tokens=[*"abc"], context_tokens=[*keys])
        assert found.has_second_input == is_second


RIGHT = [(GIVEN, attend(Q, K, V, MASK, BIAS)), (CAPPED, CAPPED_AS)]
RIGHT += [(SCORED | {"scale": ROOT, "mask": "causal"}, attend(Q, K, V, "causal"))]


@pytest.mark.parametrize(("given", "right"), RIGHT)
def test_its_own_json_is_computed_with_again_and_shown(given, right, file):
    one = record("compute", file(**given), "--head", "all", "--steps")
    other = record("compute", file("own.json", **one), "--head", "all")
    for found in (one, other):
        assert np.allclose([head["weights"] for head in found["heads"]], right[0])
        assert np.allclose([head["output"] for head in found["heads"]], right[1])
        assert (found["scale"], found["softcap"]) == (given.get("scale", ROOT), given.get("softcap"))
    assert [head["mask"] for head in one["heads"]] == (MASK.tolist() if given is GIVEN else [None] * 4)
    shown = told("show", "own.json")
    assert "do not lead" not in shown and ("× 0.3" in shown) == (given is CAPPED)


def test_every_learned_head_s_json_is_computed_with_its_own_distances(file):
    own = record("self", "she likes hot coffee", "--head", "all", "--steps")
    again = record("compute", file(**own), "--head", "all")
    for one, other in zip(own["heads"], again["heads"], strict=True):
        np.testing.assert_allclose(one["weights"], other["weights"], atol=1e-9)


def test_a_scale_of_its_own_json_gives_way_to_another_score(file):
    found = record("compute", file("own.json", **record("compute", file(**QKV), "--steps")), "--score", "dot")
    assert found["scale"] == 1 and np.allclose(found["weights"], attend(Q, K, V, scale=1)[0][0])
    odd = record("compute", file(**CAPPED), "--steps") | {"score": ["dot"]}
    odd = told("show", file("own.json", **odd))
    assert "its score or its layout is none that attn has." in " ".join(odd.split())


@pytest.mark.parametrize("options", [(), ("--head", "all"), ("--head", "mean"), ("--head", "1", "-q", "q1")])
def test_records_of_heads_with_their_own_masks_and_of_given_scores_fit_the_schema(options, file):
    scores = np.where(MASK, RAW, None).tolist()
    plain = QKV | {"mask": MASK, "scale": 2.5, "softcap": 3}
    for given in (plain, {"masked_scores": scores}, {"masked_scores": scores, "V": V}):
        for steps in ((), ("--steps",)):
            record("compute", file(**given), *options, *steps)


def test_a_temperature_of_the_file_gives_way_to_a_typed_one(file):
    name = file(scores=RAW[0], temperature=4)
    for options, temperature in (((), 4), (("-t", "2"), 2), (("-t", "1"), 1)):
        assert record("compute", name, *options)["temperature"] == temperature


def test_masked_cells_of_given_scores_are_blank(file):
    name = file(masked_scores=BLANK[0], V=V[0])
    assert "inf" not in told("compute", name, "-q", "q1")
    steps = record("compute", name, "--steps")["heads"][0]
    assert steps["scores"][0][1] is None and steps["masked_scores"][0][1] is None


@pytest.mark.parametrize("options", [(), ("-t", "2"), ("--mask", "causal")])
def test_the_numpy_script_gives_the_same(file, options):
    for name, more in ((file(**CAPPED), options), (file("heads.json", **GIVEN), ("--head", "2"))):
        found = {}
        exec(told("compute", name, *more, "-f", "code:numpy"), found)  # a script of ours
        right = record("compute", name, *more)
        assert all(np.allclose(found[part], right[part]) for part in ("weights", "output"))
    assert "--head NAME" in refused("compute", "heads.json", "--head", "all", "-f", "code:numpy")


def test_check_computes_with_the_scale_the_cap_and_the_scores(file):
    for given, right in (
        ({name: M[0] for name, M in QKV.items()} | {"scale": 0.3, "softcap": 1.5}, CAPPED_AS),
        ({"scores": RAW[0], "V": V[0], "scale": ROOT}, attend(Q, K, V)),
    ):
        weights, output = right[0][0], right[1][0]
        for answer, code in (({"weights": weights, "output": output}, 0), ({"weights": weights[::-1]}, 1)):
            ran = here("check", file("answer.json", **answer), "--expect", file(**given))
            assert ran.code == code and (code == 0 or "weights" in ran.out)


FLAT = {"Q": X, "K": X, "V": X}
PROJECTED = {"X": X, "W_q": W[0], "W_v": W[2], "heads": 4, "kv_heads": 2}
NO_NUMBERS = [0, -1, True, "0.5", [1, 2], float("nan"), float("inf"), {}]
SCALES = ("scale", "softcap")
REFUSED = [
    (QKV | {"K": K[:3], "V": V[:3]}, ("Q has shape (4, 3, 2)", "K (3, 5, 2)")),
    (QKV | {"K": K[:2]}, ("K has shape (2, 5, 2)", "V (4, 5, 3)")),
    (QKV | {"K": K[0]}, ("Q has shape (4, 3, 2)", "K (5, 2)")),
    (QKV | {"K": K[..., :1]}, ("Q has shape (4, 3, 2)", "K (4, 5, 1)")),
    (QKV | {"V": V[:, :4]}, ("K has shape (4, 5, 2)", "V (4, 4, 3)")),
    ({"Q": Q[None], "K": np.stack([K] * 3), "V": np.stack([V] * 2)}, ("(3, 4, 5, 2)", "(2, 4, 5, 3)")),
    (QKV | {"mask": MASK[:3]}, ("mask", "(3, 3, 5)", "4 heads")),
    ({"Q": Q[0], "K": K[0], "V": V[0], "mask": MASK[:2]}, ("mask", "(2, 3, 5)", "there is 1 head.")),
    (QKV | {"mask": MASK[:, :2]}, ("mask", "(2, 5)", "3 queries and 5 keys")),
    (QKV | {"bias": BIAS[:3]}, ("(3, 3, 5)", "3 queries and 5 keys of 4 heads")),
    (QKV | {"bias": BIAS[..., :4]}, ("(4, 3, 4)", "3 queries and 5 keys of 4 heads")),
    ({"X": X, "heads": 4, "kv_heads": 3}, ("kv_heads is 3", "no W_k")),
    (FLAT | {"heads": 4, "kv_heads": 3}, ("4 heads", "3 of K and V")),
    (FLAT | {"K": X[:, :3], "heads": 2, "kv_heads": 1}, ("Q has shape (3, 4)", "K (3, 3)")),
    (FLAT | {"K": X[:, :2], "V": X[:2], "heads": 2, "kv_heads": 1}, ("K has shape (3, 2)", "V (2, 4)")),
    (FLAT | {"K": X[:, :2], "heads": 2}, ("Q has shape (3, 4)", "K (3, 2)", "kv_heads")),
    (PROJECTED | {"W_k": W[1][:, :3]}, ("2 heads", "(4, 3)")),
    (PROJECTED | {"W_k": W[0]}, ("(4, 8)", "same length d_k")),
    (QKV | {"kv_heads": 0}, ("kv_heads should be a whole number above 0",)),
    ({"X": X[None, None]}, ("X has shape (1, 1, 3, 4)", "2 to 3 axes")),
    ({"X": np.stack([X, X, X])}, ("X has shape (3, 3, 4), a batch of 3", "--batch N", "0 to 2")),
    ({"scores": np.stack([RAW, -RAW])}, ("a batch of 2",)),
    ({"scores": [[1, float("nan")]]}, ("not finite", "(0, 1)")),
    *(({"scores": one}, ("scores is not a matrix of numbers",)) for one in ([[1, "2"]], [[1, 2], [3]])),
    ({"scores": [1, 2]}, ("shape (2,)", "2 to 4 axes", "(heads, n_q, n_k)")),
    (SCORED | {"heads": 2}, ("(4, 3, 5)", "heads is 2")),
    (SCORED | {"mask": TRI[:2]}, ("(2, 5)", "3 queries and 5 keys")),
    (SCORED | {"bias": BIAS[..., :4]}, ("(4, 3, 4)", "3 queries and 5 keys of 4 heads")),
    (SCORED | {"score": "cosine"}, ("gives the scores", "cosine")),
    (SCORED | {"temperature": 0}, ("temperature should be a number above 0",)),
    ({"scores": [[1e308, -1e308]], "scale": 1e10}, ("q0",)),
    *((QKV | {key: one}, (f"{key} should be a number above 0",)) for key, one in product(SCALES, NO_NUMBERS)),
]


@pytest.mark.parametrize(("given", "parts"), REFUSED)
def test_what_does_not_fit_is_refused_with_both_shapes(given, parts):
    with pytest.raises(AttnError) as error:
        traced(**given)
    assert isinstance(error.value, InputError) or "cosine" in parts
    message = f"{error.value.message} {error.value.hint}"
    assert all(part in message for part in parts), message
