"""Given matrices with axes for heads and a batch, shared keys, masks and biases a head: as `attend` has them."""

import numpy as np
import pytest

from attn_cli import Settings, attend
from attn_cli.errors import InputError, UsageError
from attn_cli.inputs.matrices import given_from
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.pipeline.records import record, told, written
from tests.shell import here

DRAW = np.random.default_rng(11)
Q, K, V = (DRAW.standard_normal(shape) for shape in ((4, 3, 2), (4, 5, 2), (4, 5, 3)))
X, W = DRAW.standard_normal((3, 4)), [DRAW.standard_normal(shape) for shape in ((4, 8), (4, 4), (4, 4))]
MASK = DRAW.random((4, 3, 5)) < 0.6
MASK[:, :, 0] = True
BIAS = DRAW.standard_normal((4, 3, 5))
GIVEN = {"Q": Q, "K": K, "V": V, "mask": MASK, "bias": BIAS}


def traced(head="all", **given):
    return trace_matrices("compute", given_from(given, "given"), Settings(head=head))


def agrees(trace, weights, output):
    assert np.allclose([head.weights for head in trace.heads], weights, atol=1e-12)
    assert np.allclose([head.output for head in trace.heads], output, atol=1e-12)


def refusal(**given):
    with pytest.raises(InputError) as error:
        traced(**given)
    return f"{error.value.message} {error.value.hint}"


def test_heads_may_have_an_axis_of_their_own():
    agrees(traced(Q=Q, K=K, V=V), *attend(Q, K, V))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_of_q_share_those_of_k_and_v(kv_heads):
    right = attend(Q, K[:kv_heads], V[:kv_heads], grouped=True)
    found = traced(Q=Q, K=K[:kv_heads], V=V[:kv_heads])
    agrees(found, *right)
    assert any(note.startswith(f"4 heads of Q share {kv_heads} head") for note in found.notes)
    flat = {"Q": np.concatenate([*Q], 1), "K": np.concatenate([*K[:kv_heads]], 1)}
    flat["V"] = np.concatenate([*V[:kv_heads]], 1)
    agrees(traced(**flat, heads=4, kv_heads=kv_heads), *right)


@pytest.mark.parametrize("layout", ["in-out", "out-in"])
def test_projections_may_make_fewer_keys_and_values_than_queries(layout):
    W_q, W_k, W_v = W
    b_q, b_k, b_v = (DRAW.standard_normal(n) for n in (8, 4, 4))
    made = [X @ M + b for M, b in ((W_q, b_q), (W_k, b_k), (W_v, b_v))]
    by_head = [np.stack(np.split(M, n, axis=1)) for M, n in zip(made, (4, 2, 2), strict=True)]
    given = [M if layout == "in-out" else M.T for M in W]
    names = dict(zip(("W_q", "W_k", "W_v"), given, strict=True))
    found = traced(X=X, **names, b_q=b_q, b_k=b_k, b_v=b_v, heads=4, kv_heads=2, layout=layout)
    agrees(found, *attend(*by_head, grouped=True))


def test_a_matrix_a_head_may_be_fewer_for_keys_and_values():
    W_q, W_k, W_v = (np.stack(np.split(M, n, axis=1)) for M, n in zip(W, (4, 2, 2), strict=True))
    right = attend(X @ W_q, X @ W_k, X @ W_v, grouped=True)
    agrees(traced(X=X, W_q=W_q, W_k=W_k, W_v=W_v), *right)


@pytest.mark.parametrize("item", [0, 1])
def test_an_item_of_a_batch_is_taken(item):
    both = {"Q": np.stack([Q, -Q]), "K": np.stack([K, 2 * K]), "V": np.stack([V, V])}
    both |= {"mask": np.stack([MASK, ~MASK | MASK]), "position_scores": np.stack([BIAS, 0 * BIAS])}
    found = trace_matrices("compute", given_from(both, "given", item), Settings(head="all"))
    own = (both[name][item] for name in (*"QKV", "mask", "position_scores"))
    agrees(found, *attend(*own))


def test_a_batch_of_one_is_taken_and_a_larger_one_names_the_option():
    agrees(traced(Q=Q[None], K=K[None], V=V[None]), *attend(Q, K, V))
    assert np.allclose(traced(X=X[None]).weights, attend(X, X, X)[0])
    message = refusal(X=np.stack([X, X, X]))
    assert "X has shape (3, 3, 4), a batch of 3" in message and "--batch N" in message and "0 to 2" in message


def test_an_item_that_there_is_not_is_wrong_usage():
    for given, batch in (({"X": X[None]}, 1), ({"X": X[None]}, -1), ({"X": X}, 0)):
        with pytest.raises(UsageError) as error:
            given_from(given, "given", batch)
        assert error.value.option == "--batch"


@pytest.mark.parametrize(
    "shape", [(4, 3, 5), (4, 1, 5), (1, 3, 5), (1, 1, 5), (3, 5), (1, 5), (3, 1), (1, 1, 1, 5), (1, 4, 3, 5)]
)
def test_masks_and_biases_stretch_as_in_attend(shape):
    mask = DRAW.random(shape) < 0.7
    mask[..., 0] = True
    agrees(traced(Q=Q, K=K, V=V, mask=mask), *attend(Q, K, V, mask.reshape(shape[-3:])))
    agrees(traced(Q=Q, K=K, V=V, mask=mask.tolist()), *attend(Q, K, V, mask.reshape(shape[-3:])))
    bias = DRAW.standard_normal(shape)
    agrees(traced(Q=Q, K=K, V=V, position_scores=bias), *attend(Q, K, V, bias=bias.reshape(shape[-3:])))
    agrees(traced(Q=Q, K=K, V=V, bias=bias), *attend(Q, K, V, bias=bias.reshape(shape[-3:])))


def test_a_shown_head_has_its_own_mask_and_the_mean_that_of_any():
    for h in range(4):
        found = traced(head=str(h), Q=Q, K=K, V=V, mask=MASK)
        assert (found.mask == MASK[h]).all()
        assert (found.weights[~MASK[h]] == 0).all()
    found = traced(head="mean", Q=Q, K=K, V=V, mask=MASK)
    assert (found.mask == MASK.any(axis=0)).all()
    assert np.allclose(found.weights, attend(Q, K, V, MASK)[0].mean(axis=0))


def test_padding_is_hidden_beside_a_mask_of_each_head():
    mask = np.ones((2, 3, 3), bool)
    mask[1] = np.tri(3)
    given = given_from({"X": X, "heads": 2, "mask": mask}, "given")
    found = trace_matrices("compute", given, Settings(head="all", pad=5))
    padding = np.zeros((8, 8), bool)
    padding[:, found.pad_keys.start : found.pad_keys.stop] = True
    for head in found.heads:
        assert (head.weights[padding] == 0).all()
    assert (found.heads[1].weights[:3, :3][~mask[1]] == 0).all()


def test_masks_and_biases_of_each_head_come_back_out_of_the_json(at):
    given = written(at / "given.json", GIVEN)
    one = record("compute", given, "--head", "all", "--steps")
    other = record("compute", written(at / "own.json", one), "--head", "all")
    assert [head["mask"] for head in one["heads"]] == MASK.tolist()
    weights = [np.array([head["weights"] for head in found["heads"]]) for found in (one, other)]
    assert np.allclose(weights[0], attend(Q, K, V, MASK, BIAS)[0])
    assert np.allclose(*weights)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"Q": Q, "K": K[:3], "V": V[:3]}, ("Q has shape (4, 3, 2)", "K (3, 5, 2)")),
        ({"Q": Q, "K": K[:2], "V": V}, ("K has shape (2, 5, 2)", "V (4, 5, 3)")),
        ({"Q": Q, "K": K[0], "V": V}, ("Q has shape (4, 3, 2)", "K (5, 2)")),
        ({"Q": Q, "K": K[..., :1], "V": V}, ("Q has shape (4, 3, 2)", "K (4, 5, 1)")),
        ({"Q": Q, "K": K, "V": V[:, :4]}, ("K has shape (4, 5, 2)", "V (4, 4, 3)")),
        ({"Q": Q[None], "K": np.stack([K] * 3), "V": np.stack([V] * 2)}, ("(3, 4, 5, 2)", "(2, 4, 5, 3)")),
        ({"Q": Q, "K": K, "V": V, "mask": MASK[:3]}, ("mask", "(3, 3, 5)", "4 heads")),
        ({"Q": Q[0], "K": K[0], "V": V[0], "mask": MASK[:2]}, ("mask", "(2, 3, 5)", "there is 1 head.")),
        ({"Q": Q, "K": K, "V": V, "mask": MASK[:, :2]}, ("mask", "(2, 5)", "3 queries and 5 keys")),
        ({"Q": Q, "K": K, "V": V, "bias": BIAS[:3]}, ("(3, 3, 5)", "3 queries and 5 keys of 4 heads")),
        ({"Q": Q, "K": K, "V": V, "bias": BIAS[..., :4]}, ("(4, 3, 4)", "3 queries and 5 keys of 4 heads")),
        ({"X": X, "heads": 4, "kv_heads": 3}, ("kv_heads is 3", "no W_k")),
        ({"Q": X, "K": X, "V": X, "heads": 4, "kv_heads": 3}, ("4 heads", "3 of K and V")),
        ({"Q": X, "K": X[:, :3], "V": X, "heads": 2, "kv_heads": 1}, ("Q has shape (3, 4)", "K (3, 3)")),
        ({"Q": X, "K": X[:, :2], "V": X[:2], "heads": 2, "kv_heads": 1}, ("K has shape (3, 2)", "V (2, 4)")),
        ({"Q": X, "K": X[:, :2], "V": X, "heads": 2}, ("Q has shape (3, 4)", "K (3, 2)", "kv_heads")),
        (
            {"X": X, "W_q": W[0], "W_k": W[1][:, :3], "W_v": W[2], "heads": 4, "kv_heads": 2},
            ("2 heads", "(4, 3)"),
        ),
        (
            {"X": X, "W_q": W[0], "W_k": W[0], "W_v": W[2], "heads": 4, "kv_heads": 2},
            ("(4, 8)", "same length d_k"),
        ),
        ({"Q": Q, "K": K, "V": V, "kv_heads": 0}, ("kv_heads should be a whole number above 0",)),
        ({"X": X[None, None]}, ("X has shape (1, 1, 3, 4)", "2 to 3 axes")),
    ],
)
def test_what_does_not_fit_is_refused_with_both_shapes(given, parts):
    message = refusal(**given)
    assert all(part in message for part in parts), message


def test_the_option_takes_an_item_on_the_command_line(at):
    given = written(at / "given.json", {"X": [X.tolist(), (2 * X).tolist()]})
    assert here("compute", given).code == 65 and here("compute", given, "--batch", "2").code == 2
    assert np.allclose(record("compute", given, "--batch", "1")["weights"], attend(2 * X, 2 * X, 2 * X)[0])


def test_a_script_of_heads_that_differ_in_their_mask_is_refused_and_one_of_them_runs(at):
    given = written(at / "given.json", GIVEN)
    ran = here("compute", given, "--head", "all", "-f", "code:numpy")
    assert ran.code == 2 and "--head NAME" in ran.err
    names = {}
    exec(told("compute", given, "--head", "2", "-f", "code:numpy"), names)  # a script of ours
    assert np.allclose(names["weights"], attend(Q, K, V, MASK, BIAS)[0][2])


@pytest.mark.parametrize("options", [(), ("--head", "all"), ("--head", "mean"), ("--head", "1", "-q", "q1")])
def test_records_of_heads_with_their_own_masks_and_of_given_scores_fit_the_schema(options, at):
    scores = np.where(MASK, Q @ K.swapaxes(-1, -2), None).tolist()
    plain = {"Q": Q, "K": K, "V": V, "mask": MASK, "scale": 2.5, "softcap": 3}
    for given in (plain, {"masked_scores": scores}, {"masked_scores": scores, "V": V}):
        for steps in ((), ("--steps",)):
            record("compute", written(at / "given.json", given), *options, *steps)
