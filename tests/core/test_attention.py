"""Attention: the numbers of the formula in plain loops, masks, groups, every step, and what is refused."""

import math
from functools import partial
from itertools import product
from operator import mul

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra import numpy as npst

from attn_cli import attend
from attn_cli.core import heads, scores
from attn_cli.core.attend import output_of, strongest_links
from attn_cli.core.heads import HeadInput, checked_attention
from attn_cli.core.masks import named
from attn_cli.core.scores import SCORES
from attn_cli.errors import AttnError, InputError, UsageError
from tests.memory import peak
from tests.problems import KINDS, Kind, made, some
from tests.thorough import often

laws = settings(max_examples=often(60), deadline=None, derandomize=True)
inf, nan = math.inf, math.nan


def in_loops(Q, K, V, scale, allowed=None, bias=None, softcap=None):
    """Attention as section 3.2.1 has it, a number at a time and without NumPy's help."""
    weights, output = [], []
    for i, q in enumerate(Q):
        scores = []
        for j, k in enumerate(K):
            score = sum(a * b for a, b in zip(q, k, strict=True)) * scale
            score = score if softcap is None else softcap * math.tanh(score / softcap)
            score += 0 if bias is None else bias[i][j]
            scores.append(score if allowed is None or allowed[i][j] else -inf)
        exps = [math.exp(score - max(scores)) if score > -inf else 0.0 for score in scores]
        weights.append([e / sum(exps) if any(exps) else 0.0 for e in exps])
        output.append([sum(w * v[c] for w, v in zip(weights[-1], V, strict=True)) for c in range(len(V[0]))])
    return np.array(weights), np.array(output)


def same(ours, theirs, tolerance=1e-12):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def drawn(lead, n_q, n_k, of_keys=None):
    """Q, K and V with these leading axes; keys and values may have others."""
    of_keys = lead if of_keys is None else of_keys
    K, V = (some(*of_keys, n_k, d, seed=d) for d in (4, 2))
    return {"Q": some(*lead, n_q, 4), "K": K, "V": V}


def agree(ours, theirs):
    """Check that two problems, as arguments of `attend`, have the same weights and output, also without weights."""
    weights, output = attend(**theirs)
    same([*attend(**ours), attend(**ours, return_weights=False)[1]], [weights, output, output])


@laws
@given(KINDS)
@example(Kind(3, 4, 3, 2))  # small and plain, with a scale that no number holds exactly
def test_the_numbers_are_those_of_the_formula_in_plain_loops_with_a_softcap_before_bias_and_mask(kind):
    problem = made(kind._replace(dtype="float64"))
    (Q, K, V, scale, *_, cap), more = problem, (problem.allowed, problem.added)
    steps = checked_attention(Q, K, V, *more, softcap=cap)
    wanted = in_loops(*(M.tolist() for M in (Q, K, V)), scale, *more, cap)
    best = steps.masked_scores.max(axis=1)
    sizes = (np.abs(M).max(initial=0) for M in (steps.scaled_scores, best[np.isfinite(best)]))
    tolerance = 1e-12 * max(1, *sizes)
    same([steps.weights, steps.output], wanted, tolerance)
    same(attend(Q, K, V, *more, softcap=cap), wanted, tolerance)
    if cap:
        assert np.abs(steps.capped_scores).max() <= cap


def test_scores_far_below_zero_have_weights_too_although_each_exponential_is_0():
    weights, _ = attend([[1.0], [1.0]], [[-2000.0], [-2001.0]], [[1.0], [2.0]], "causal", scale=1.0)
    same([weights], [[[1, 0], [1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))]]])


def test_a_score_that_overflows_is_the_cap_itself_and_the_sum_of_huge_exponentials_has_a_logarithm():
    steps = attend([[1000.0], [-1000.0]], [[1.0], [1.0]], [[1.0], [2.0]], scale=1.0, steps=True)
    same([steps.log_sum_exp], [[1000 + math.log(2), -1000 + math.log(2)]])
    many = np.ones((20_000, 1), np.float32)
    same(attend(many[:1], many, many, steps=True).log_sum_exp, [1 + math.log(20_000)], 2e-6)
    Q = np.array([[1e30]], np.float32)
    K = np.array([[1e30], [0]], np.float32)
    weights, _ = attend(Q, K, K * 0, softcap=2.0)
    assert weights[0, 0] == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-6)
    for least, most in ((1e-6, 0), (1e30, 1)):  # the smallest cap makes all alike, the largest cuts nothing
        weights, _ = attend([[1e3]], [[1e3], [0.0]], [[1.0], [2.0]], softcap=least)
        assert weights[0, 0] == pytest.approx((1 + most) / 2, abs=1e-6)


def test_scores_that_float16_cannot_hold_are_no_obstacle():
    Q = np.full((2, 4), 200, np.float16)
    K = np.array([[200] * 4, [100] * 4], np.float16)
    steps = attend(Q, K, K, steps=True)
    assert steps.scores[0].tolist() == [160_000, 80_000]
    assert (steps.weights.dtype, steps.output.dtype, steps.log_sum_exp.dtype) == ("f2", "f2", "f4")
    same([steps.weights], [[[1, 0], [1, 0]]], 0)
    same(attend(Q, K, K), [steps.weights, steps.output], 0)


TYPES = ["f2 f4 f4", "f2 f8 f8", "f4 f8 f8", "i8 i8 i8", "u1 ? i1", "u1 u1 u1", "? ? ?"]


@pytest.mark.parametrize("types", TYPES)
def test_types_beside_each_other_are_as_wide_as_the_widest_and_whole_numbers_are_float64(types):
    M = np.array([[2, 1], [0, 3]])
    given, kept = [M.astype(one) for one in types.split()], "f4" if types == "f2 f4 f4" else "f8"
    for return_weights in (True, False):
        weights, output = attend(*given, "causal", bias=[[0, 0], [0.5, 0]], return_weights=return_weights)
        assert output.dtype == kept and (weights.dtype == kept if return_weights else weights is None)
    same(attend(*given), attend(*(one.astype(float) for one in given)), 1e-6)
    assert attend(*given, return_weights=False)[0] is None


@pytest.mark.parametrize("n", [5, 150])  # 150 x 149 scores are worked on by tiles
@pytest.mark.parametrize(
    "shape", [(1, -1), (-2, 1), (1, 1), (2, 1, 1, -1), (2, 3, -2, -1), (3, 1, -1), (1, 3, -2, 1)], ids=str
)
def test_a_mask_is_the_same_along_an_axis_of_one(shape, n):
    given, shape = drawn((2, 3), n, n - 1), tuple({-1: n - 1, -2: n}.get(axis, axis) for axis in shape)
    mask = some(*shape, seed=3) > -0.3
    whole = np.broadcast_to(mask, (2, 3, n, n - 1))
    agree(given | {"mask": mask}, given | {"mask": whole.copy()})
    assert not attend(**given, mask=mask)[0][~whole].any()


@pytest.mark.parametrize("n", [5, 150])
@pytest.mark.parametrize(
    "names", ["causal", "causal window:2", "window:1:0 causal-bottom-right", "none causal", "none"]
)
@pytest.mark.parametrize("with_array", [False, True])
def test_of_several_masks_all_must_allow(names, with_array, n):
    given, mask = drawn((2,), n, n + 2), names.split()
    rules = [named(name, n, n + 2) for name in mask]
    whole = np.ones((2, n, n + 2), bool)
    if with_array:
        mask.insert(1, some(2, 1, n + 2, seed=3) > -0.3)
        whole &= mask[1]
    for rule in filter(None, rules):
        whole &= rule.rows(range(n))
    agree(given | {"mask": mask}, given | {"mask": whole})
    one = {name: M[0] for name, M in given.items()}
    of_one = [part if type(part) is str else part[0] for part in mask]
    links, output = strongest_links(**one, k=2, mask=of_one)
    same([output], [attend(**one, mask=whole[0])[1]])
    assert (np.take_along_axis(whole[0], links.keys, 1) | (links.keys < 0)).all()


@pytest.mark.parametrize("n", [5, 150])
@pytest.mark.parametrize("mask", [None, "causal", "causal-bottom-right", "window:1:0", "array", "both"])
def test_keys_beyond_a_length_are_as_if_they_were_not_there(mask, n):
    n_k, given = n + 3, drawn((3, 2), n, n + 3)
    allowed, bias = some(n, n_k, seed=3) > -0.3, some(n, n_k, seed=4)
    for i, real in enumerate((n_k, n_k // 2, 1)):
        cut = given | {name: given[name][:, :, :real] for name in "KV"}
        masks = ({"array": M, "both": ["causal", M]}.get(mask, mask) for M in (allowed, allowed[:, :real]))
        options = {"bias": bias, "mask": next(masks), "lengths": [n_k, n_k // 2, 1]}
        alone = attend(**{name: M[i] for name, M in cut.items()}, mask=next(masks), bias=bias[:, :real])
        for return_weights in (True, False):
            weights, output = attend(**given, **options, return_weights=return_weights)
            same([output[i]], [alone[1]])
            if return_weights:
                same([weights[i][..., :real]], [alone[0]])
                assert not weights[i][..., real:].any()


def test_one_length_serves_one_head_and_all_heads():
    Q, K, V = drawn((), 4, 6).values()
    K[4:] = V[4:] = nan  # whatever stands there
    short = attend(Q, K[:4], V[:4])
    same([attend(Q, K, V, lengths=4)[1]], [short[1]])
    same([attend(Q[np.newaxis], K, V, lengths=4)[1][0]], [short[1]])
    links, output = strongest_links(Q, K, V, 6, lengths=4)
    same([output], [short[1]])
    assert (links.keys[:, 4:] == -1).all() and (links.keys[:, :4] < 4).all()
    none, nothing = attend(Q, K, V, lengths=0)
    assert not none.any() and not nothing.any()


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_steps_follow_from_each_other_up_to_the_weights_and_output(batch, with_bias):
    Q, K, V = drawn(batch, 4, 5).values()
    bias = some(*batch, 4, 5, seed=3) if with_bias else None
    allowed = some(*batch, 4, 5, seed=4) > -0.5
    allowed[..., 1, :] = False
    options = {"mask": allowed, "bias": bias, "scale": 0.4, "softcap": 1.5}
    steps = attend(Q, K, V, steps=True, **options)
    same([steps.scores], [Q @ np.swapaxes(K, -1, -2)])
    same([steps.scaled_scores], [steps.scores * 0.4])
    same([steps.capped_scores], [1.5 * np.tanh(steps.scaled_scores / 1.5)])
    assert steps.bias is None if bias is None else (steps.bias == bias).all()
    wanted = np.where(allowed, steps.capped_scores + (0 if bias is None else bias), -inf)
    same([steps.masked_scores], [wanted])
    same([steps.weights, steps.output], attend(Q, K, V, **options))
    assert steps.log_sum_exp.shape == (*batch, 4)
    assert np.isneginf(steps.log_sum_exp[..., 1]).all()
    shares = np.exp(steps.masked_scores - np.where(allowed.any(-1), steps.log_sum_exp, 0)[..., np.newaxis])
    same([steps.weights], [shares])


@pytest.mark.parametrize("n", [5, 150])  # 150 x 151 scores are worked on by tiles
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 1), (3, 3)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_grouped_heads_are_those_with_keys_and_values_repeated(n, batch, heads, kv_heads):
    given = drawn((*batch, heads), n, n + 1, (*batch, kv_heads))
    options = {"mask": "causal", "bias": some(heads, 1, n + 1, seed=3)}
    repeated = {name: np.repeat(given[name], heads // kv_heads, axis=-3) for name in "KV"}
    agree(given | options | {"grouped": True}, given | options | repeated)


STRETCHED = np.arange(5000) % 3 > np.zeros((1, 1))
WHOLE = {"mask": "causal"}, {"mask": ["causal", "window:900:0"], "softcap": 2.0}
WHOLE += ({"mask": STRETCHED, "lengths": 4000},)


@pytest.mark.parametrize("options", WHOLE, ids=["causal", "several and a cap", "an array and a length"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_output_and_links_are_made_without_a_matrix_of_all_weights(options, dtype):
    n = 5000
    Q = some(n, 4, dtype=dtype)
    for way in (partial(attend, return_weights=False), partial(strongest_links, k=5)):
        assert peak(partial(way, Q, Q, Q, **options)) < n * n * Q.itemsize / 2


@laws
@given(KINDS)
def test_a_cosine_is_the_dot_product_over_both_lengths_and_zero_for_a_zero_vector(kind):
    Q, K, *_ = made(kind._replace(dtype="float64"))
    Q, K = (np.vstack([M, np.zeros_like(M[:1])]) for M in (Q, K))
    found = SCORES["cosine"].of(Q, K)
    for (i, q), (j, k) in product(enumerate(Q.tolist()), enumerate(K.tolist())):
        lengths = math.hypot(*q) * math.hypot(*k)
        if lengths > 1e-300 or not any(q) or not any(k):
            assert found[i, j] == pytest.approx(sum(map(mul, q, k)) / (lengths or 1), abs=1e-12)


def test_a_cosine_does_not_depend_on_length_however_long_or_short():
    Q, K = some(2, 3), some(4, 3, seed=1)
    for length in (1e-200, 1e200):
        same([SCORES["cosine"].of(Q * length, K / length)], [SCORES["cosine"].of(Q, K)])


def test_a_score_by_hand_has_the_products_and_the_lengths_and_an_unknown_one_the_names_there_are():
    by_hand = SCORES["cosine"].by_hand([0.0, -2.0], [3.0, 4.0], -0.8, str)
    assert by_hand == ("q·k", [("0.0×3.0", 0), ("(-2.0)×4.0", -8)], "; / (2.0 × 5.0) = -0.8")
    scales = [(scores.scale_of(name, 4), scores.position_scale_of(name, 4)) for name in SCORES]
    assert scales == [(0.5, 0.5), (1, 1), (1, 0.5)]
    said = r"^There is no score 'dto'\. Did you mean dot\? Scores are scaled, dot, cosine\.$"
    with pytest.raises(UsageError, match=said):
        scores.score_named("dto")


TIED = st.sampled_from([0, 0.25, 0.5, 1])


@pytest.mark.parametrize("short", [0, heads.SHORT])  # keys up to which whole rows are sorted
@laws
@given(
    npst.arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 24)), elements=TIED),
    st.integers(1, 30),
    st.data(),
)
def test_the_strongest_links_are_those_of_a_plain_sort_and_ties_go_to_the_lowest_key(short, weights, k, data):
    allowed = data.draw(st.none() | npst.arrays(np.bool_, weights.shape))
    weights = weights if allowed is None else np.where(allowed, weights, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "SHORT", short)
        links = heads.strongest(weights, k, allowed)
    kept = min(k, weights.shape[1])
    for i, row in enumerate(weights.tolist()):
        may = [j for j in range(len(row)) if allowed is None or allowed[i, j]]
        order = sorted(may, key=lambda j, row=row: (-row[j], j))[:kept]
        spare = kept - len(order)
        assert links.keys[i].tolist() == order + [-1] * spare
        assert links.weights[i].tolist() == [row[j] for j in order] + [0.0] * spare


@pytest.mark.parametrize("short", [0, heads.SHORT])
def test_keys_whose_weights_differ_by_rounding_alone_are_listed_in_the_order_of_the_text(short, monkeypatch):
    monkeypatch.setattr(heads, "SHORT", short)
    weights = np.array([[0.3, np.nextafter(0.3, 1), 0.4], [0.3, 0.4, 0.2]])
    assert heads.strongest(weights, 3).keys.tolist() == [[2, 0, 1], [1, 0, 2]]


def shaped(**shapes):
    """Arguments of `attend` that would fit each other, but for those of these shapes."""
    shapes = {"Q": (2, 3), "K": (4, 3), "V": (4, 2)} | shapes
    return {name: np.ones(shape, bool if name == "mask" else float) for name, shape in shapes.items()}


SQUARE = {name: np.eye(2) for name in "QKV"}
FOURS = dict.fromkeys("QKV", np.ones((2, 4, 5, 3)))
HEADED = {"Q": (2, 2, 3), "K": (2, 4, 3), "V": (2, 4, 2)}
FOR_WHOM = "2 queries and 4 keys."
NO_GROUPS = [
    ((4, 2, 3), (3, 2, 3), (3, 2, 3)),  # no multiple
    ((4, 2, 3), (2, 2, 3), (4, 2, 3)),  # more values than keys
    ((2, 2, 3), (4, 2, 3), (4, 2, 3)),  # fewer queries
    ((2, 3), (2, 3), (2, 3)),  # no axis of heads
    *(((5, 4, 2, 3), (k, 2, 2, 3), (v, 2, 2, 3)) for k, v in ((3, 3), (3, 1), (1, 3))),  # batches
]
NO_MATRIX = [[1.0, 2.0], 1.0, [[]], [[1.0, 2.0], [1.0]], np.ones((0, 2)), np.ones((2, 0))]
NO_MATRIX += [[["a", "b"]], [[1j, 0]], [[None, 0]]]
NO_LENGTHS = [[1.0, 2.0], [True, False], "all", [[1], [1, 2]]]
REFUSED = [  # what is given, and parts of what is said
    *(({"softcap": one}, "softcap cannot be") for one in (0, 0.0, -1.0, inf, nan, "50", None.__class__)),
    *(({"softcap": one}, "from 1e-06 to 1e+30") for one in (9e-7, 1.1e30, b"50")),
    *(({"scale": one}, "scale cannot be") for one in ("0.5", b"0.5", [1, 2])),
    *(({"threads": one}, "threads") for one in (0, -1, 1.5, "2")),
    *(({"mask": one}, "boolean") for one in ([[1, 0], [1, 1]], [[0.0, -1e9], [0, 0]], [["a", "b"], "cd"])),
    ({"mask": [[True], [True, False]]}, "The mask is not a matrix: its rows differ"),
    ({"mask": ["causal", [[1, 0], [1, 1]]]}, "boolean"),
    ({"mask": ["causal", np.ones((2, 3), bool)]}, "has shape (2, 3)"),
    ({"mask": ["casual", "none"]}, "no mask 'casual'"),
    ({"mask": "window:"}, "no mask"),
    ({"mask": np.ones((3, 2, 2), bool)}, "mask has shape (3, 2, 2)"),
    ({"bias": [["a"]]}, "The bias must be a matrix of numbers."),
    ({"bias": np.ones((3, 2))}, "bias has shape ... (2, 2), (1, 2) for keys or (2, 1) for queries"),
    ({"steps": True, "return_weights": False}, "return_weights"),
    (shaped(Q=(4, 2, 3), K=(2, 2, 3), V=(2, 2, 3)), "leading axes do not fit ... grouped=True"),
    (FOURS | {"lengths": [2, 6]}, "cannot hold 6: there are 5 keys"),
    (FOURS | {"lengths": [-1, 2]}, "cannot hold -1"),
    (FOURS | {"lengths": [1, 2, 3]}, "shape (3,), but the leading axes are (2, 4)"),
    (FOURS | {"lengths": [[[1]]]}, "leading axes"),
    *((FOURS | {"lengths": one}, "whole numbers") for one in NO_LENGTHS),
    (shaped(K=(4, 5)), "(2, 3) ... (4, 5)"),
    (shaped(V=(5, 2)), "(4, 3) ... (5, 2)"),
    (shaped(**HEADED | {"K": (3, 4, 3), "V": (3, 4, 2)}), "(2, 2, 3) ... (3, 4, 3)"),
    (shaped(**HEADED | {"V": (3, 4, 2)}), "(2, 4, 3) ... (3, 4, 2)"),
    (shaped(**HEADED | {"K": (1, 4, 3), "V": (3, 4, 2)}), "Q has shape (2, 2, 3) and V (3, 4, 2)"),
    *((shaped(**{name: (4, 2)}), f"(4, 2) ... {FOR_WHOM}") for name in ("mask", "bias")),
    (shaped(mask=(4,)), f"(4,) ... {FOR_WHOM}"),
    *((shaped(**HEADED, **{name: (3, 2, 4)}), "(3, 2, 4) ... of (2,) heads.") for name in ("mask", "bias")),
    *(
        (
            shaped(Q=Q, K=K, V=V) | {"grouped": True},
            f"{Q} ... {K} ... {V} ... groups of heads ... grouped=True",
        )
        for Q, K, V in NO_GROUPS
    ),
    *(({name: bad}, f"{name} must be a matrix of numbers") for name in "QKV" for bad in (*NO_MATRIX, None)),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=lambda part: part if type(part) is str else "")
def test_what_cannot_be_is_refused_in_one_sentence(options, said):
    with pytest.raises(UsageError if "no mask" in said else InputError) as refused:
        attend(**SQUARE | options)
    assert all(part in str(refused.value) for part in said.split(" ... "))
    assert ("grouped=True" in said) == ("grouped=True" in str(refused.value))
    assert "detach" not in refused.value.hint
    if "threads" in options:
        with pytest.raises(InputError, match="threads"):
            strongest_links(**SQUARE, k=1, **options)


def test_links_are_one_head_s_at_least_one_and_what_distances_add_is_a_number():
    with pytest.raises(InputError, match=r"^Give one head: matrices without leading axes\.$"):
        strongest_links(**drawn((2,), 3, 3), k=1)
    for k in (0, -1, 1.5, "2"):
        with pytest.raises(InputError, match=rf"^k cannot be {k!r}\. Give a whole number, 1 or more\.$"):
            strongest_links(**SQUARE, k=k)
    position = heads.Position(np.array([[2.0], [-1.0], [0.5]]), np.array([1.0, 1.0, 3.0]))
    q = np.array([[1.0], [4.0]], np.float32)
    assert position.by_distance(q, 2.0).tolist() == [[6, 0, 7], [18, -6, 10]]
    for sign in (1e38, -1e38):
        with pytest.raises(InputError, match=r"^The position term is more than a number can hold\."):
            position.by_distance(q, sign)


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("scale", [nan, inf, -inf, 1e39, 1e300])
def test_a_scale_with_which_no_score_is_finite_is_refused(scale, n):
    Q = some(n, 4, dtype=np.float32)
    with np.errstate(all="ignore"):
        for way in (attend, partial(attend, return_weights=False), partial(strongest_links, k=2)):
            with pytest.raises(InputError, match="query 0 and key 0 is not a finite number"):
                way(Q, Q, Q, scale=scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_chain_of_near_ties_is_in_order_of_weight(dtype):
    K = np.linspace(0, 0.02, 1000).astype(dtype)[:, np.newaxis]
    for n_q in (1, 100):  # few rows and many go different ways
        links, _ = strongest_links(np.ones((n_q, 1), dtype), K, K, 300, scale=1.0)
        assert abs(links.keys[0] - np.arange(999, 699, -1)).max() < 2
        assert (np.diff(links.weights[0]) <= links.weights[0, 0] * 1e-5).all()


class Tensor:
    """What NumPy cannot read of itself, as a tensor that has a gradient, or is in bfloat16."""

    detach = True

    def __init__(self, error):
        self.error = error

    def __array__(self, *args, **more):
        raise self.error


UNREAD = [(RuntimeError("it needs grad. Use it so."), "it needs grad"), (TypeError(), "TypeError")]
UNREAD += [(TypeError("BFloat16.\nUse it so."), "BFloat16")]


@pytest.mark.parametrize(("error", "why"), UNREAD)
@pytest.mark.parametrize("more", [{}, {"steps": True}])
def test_a_tensor_that_numpy_cannot_read_is_one_clear_error(error, why, more):
    Q, odd = np.ones((2, 3)), Tensor(error)
    with pytest.raises(AttnError, match=rf"^Q cannot be read as an array: {why}\. Of a tensor") as caught:
        attend(odd, Q, Q, **more)
    assert "Q.detach().float()" in str(caught.value.hint)
    with pytest.raises(AttnError, match="bias") as caught:
        attend(Q, Q, Q, bias=odd, **more)
    assert "bias.detach().float()" in str(caught.value.hint)


@pytest.mark.parametrize("sink", [inf, -inf, nan, 1e39])
def test_a_sink_that_is_no_number_in_the_dtype_is_refused(sink):
    said = rf"^The sink's score, {sink:g}, is not a finite number in float32\.".replace("+", r"\+")
    with pytest.raises(InputError, match=said):
        checked_attention(*np.ones((3, 2, 2), np.float32), sink=sink)


def test_each_block_of_rows_is_reported_when_it_is_done(monkeypatch):
    monkeypatch.setattr(heads, "BLOCK_CELLS", 6)
    reports, head = [], HeadInput(*np.ones((3, 5, 3)), sink=0.5)
    output_of(head, None, reports.append)
    assert reports == [0.2, 0.4, 0.6, 0.8, 1.0]


MORE = [{"by_distance": np.ones((3, 5)) * np.arange(5)}, {"sink": 1.0}, {"score": "cosine"}, {"softcap": 0.5}]


@pytest.mark.parametrize("more", MORE, ids=str)
def test_the_output_alone_of_a_small_head_counts_all_that_belongs_to_its_scores(more):
    head = HeadInput(*np.random.default_rng(0).standard_normal((3, 3, 3)), scale=0.7, **more)
    np.testing.assert_allclose(output_of(head, None, None), head.steps(range(3)).output, rtol=0, atol=1e-12)
