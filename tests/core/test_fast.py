"""The fast ways of attention: the readable core's results, whatever the tiles and the threads.

Most cases are small and worked on by tiny tiles, so that each has many borders; some have the real ones.
"""

import math
import os
import signal
import threading
import time
import tracemalloc
import warnings
from functools import partial
from timeit import Timer

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, settings, strategies as st

from attn_cli import attend
from attn_cli.core import heads as heads_module, streaming, threads as pool
from attn_cli.core.attend import strongest_links, tiles_of
from attn_cli.core.heads import HeadInput, checked_attention, fits
from attn_cli.errors import InputError
from tests.problems import DTYPES, KINDS, TOLERANCE, Kind, compared, made, some, tiled
from tests.thorough import like_cases, often

laws = settings(max_examples=often(80), deadline=None, derandomize=True)
few = settings(max_examples=often(25), deadline=None, derandomize=True)
inf, nan = math.inf, math.nan
TILINGS = st.tuples(st.integers(1, 5), st.integers(1, 6), st.booleans())


def within(problem, **options):
    """Check that every way to solve the problem keeps the tolerance."""
    shares = dict(compared(problem, **options))
    assert shares and max(shares.values()) <= 1, shares


def by_rows(head, threads):
    """Each block's weights and output, by its rows."""
    found = {}

    def keep(rows, *made):
        found[rows] = [M.copy() for M in made]

    streaming.attended([head], False, threads, each=keep)
    return found


def ways(Q, K, V, mask=None, bias=None, **options):
    """The outputs of attend, of attend without weights, and of strongest_links; the first with its weights."""
    weights, output = attend(Q, K, V, mask, bias, **options)
    alone = attend(Q, K, V, mask, bias, return_weights=False, **options)[1]
    links, third = strongest_links(Q, K, V, 3, mask, bias, **options)
    return weights, links, (output, alone, third)


@laws
@given(KINDS, TILINGS, st.integers(1, 9))
def test_every_way_gives_the_readable_cores_results_whatever_the_tiles(kind, tiling, k):
    with tiled(*tiling):
        within(made(kind), k=k)
    within(made(kind))  # small work, without tiles


TILES = [  # n_q, n_k: past SMALL and never a multiple of a tile; and what is not usual
    *("300 200", "300 700 rule=causal distance=9", "700 300 rule=causal-bottom-right scores=words"),
    "400 613 rule=window:2 padding=right scores=words distance=3",
    *("500 513 rule=array bias=shut scores=outlier", "513 511 padding=left scores=huge"),
    *("260 520 bias=low scores=opposite", "270 600 scores=one_word distance=9", "1 20000 scores=words"),
    *("3 9000 bias=slopes", "20000 1 rule=causal", "9000 2 scores=sharp"),
    *("513 511 scores=huge cap=30 rule=window:3:0", "300 700 scores=sharp cap=2000 distance=9"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", TILES)
@like_cases
def test_tiles_of_the_real_size_give_the_readable_cores_results(kind, dtype):
    n_q, n_k, *more = kind.split()
    told = dict(one.replace("_", " ").split("=") for one in more)
    k = 4 if dtype == "float32" else heads_module.FEW + 8
    within(made(Kind(int(n_q), int(n_k), 20, 3, dtype, **told)), k=k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d_k", [1, 64, 300, 1000])
def test_long_vectors_lose_no_digits_to_the_bound(d_k, dtype):
    within(made(Kind(5000, 4, d_k, 8, dtype)))


@pytest.mark.parametrize("n_q", [1, 2])
def test_a_long_row_of_like_words_loses_no_digits_in_its_sums(n_q):
    # One key has half of the weight; all others are the same, so that rounding goes one way a hundred thousand times.
    n_k, Q = 100_000, np.full((n_q, 2), 0.7, np.float32)
    Q[:, 0] = 1
    K, V = np.tile(np.float32([0, 1.7]), (n_k, 1)), np.tile(np.float32([0, 1]), (n_k, 1))
    K[7], V[7] = [math.log(n_k) + 1.19, 0], [1, 1]
    core = checked_attention(*(M.astype(float) for M in (Q, K, V)), scale=1.0)
    weights, links, outputs = ways(Q, K, V, scale=1.0)
    for weight in (weights[:, 7], links.weights[:, 0]):
        np.testing.assert_allclose(weight, core.weights[:, 7], rtol=0, atol=1e-6 * math.log(n_k))
    for output in outputs:
        np.testing.assert_allclose(output, core.output, rtol=0, atol=2e-4)


@few
@given(KINDS, TILINGS, st.sampled_from([2, 3]))
def test_any_number_of_threads_gives_the_same_bits(kind, tiling, threads):
    problem = made(kind)
    if not problem.is_fast:
        return
    with tiled(*tiling):
        heads = [streaming.Tiles(problem.head._replace(V=V)) for V in (problem.V, -problem.V)]
        for with_weights in (True, False):
            np.testing.assert_equal(*(streaming.attended(heads, with_weights, n) for n in (threads, 1)))
        found, alone = by_rows(heads[0], threads), by_rows(heads[0], 1)
        assert found
        np.testing.assert_equal(found, alone)


AXES, SOME = (st.sampled_from([(), (1,), (3,), one]) for one in ((2, 3), (2, 1)))
WHOSE = st.sampled_from(["none", "one", "each"])


@few
@given(AXES, SOME, WHOSE, WHOSE, st.sampled_from(DTYPES), st.integers(0, 99))
def test_heads_know_nothing_of_each_other_and_share_what_is_given(axes, others, masks, biases, dtype, seed):
    draw = np.random.default_rng(seed)
    lead = np.broadcast_shapes(axes, others)
    shapes = (*axes, 7, 3), (*others, 5, 3), (5, 2)
    Q, K, V = (draw.standard_normal(shape).astype(dtype) for shape in shapes)
    mask = {"none": None, "one": draw.random((7, 5)) < 0.7, "each": draw.random((*lead, 7, 5)) < 0.7}[masks]
    bias = {"none": None, "one": some(5, dtype=dtype), "each": some(*lead, 7, 5, dtype=dtype)}[biases]
    with tiled(2, 2):
        weights, output = attend(Q, K, V, mask, bias)
        alone = attend(Q, K, V, mask, bias, return_weights=False)[1]
    assert weights.shape == (*lead, 7, 5) and output.shape == alone.shape == (*lead, 7, 2)
    full = [np.broadcast_to(M, (*lead, *M.shape[-2:])) for M in (Q, K)]
    for at in np.ndindex(*lead):
        allowed = mask[at] if masks == "each" else mask
        added = None if bias is None else np.broadcast_to(bias, (*lead, 7, 5))[at]
        core = checked_attention(full[0][at], full[1][at], V, allowed, added, 1 / math.sqrt(3))
        for ours, theirs in ((weights, core.weights), (output, core.output), (alone, core.output)):
            np.testing.assert_allclose(ours[at], theirs, rtol=0, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
def test_a_type_of_numbers_with_a_point_stays_as_it_is_and_is_rounded_once(n, dtype):
    Q, bias = some(n, 4).astype(dtype), some(n, n).astype(dtype)
    exact = (M.astype(np.result_type(dtype, np.float32)) for M in (Q, Q, Q))
    core = checked_attention(*exact, np.tri(n, dtype=bool), bias.astype(np.float64), 0.5)
    for scale in (None, np.float64(0.5), np.float64(1) / np.sqrt(np.int64(4))):
        weights, links, outputs = ways(Q, Q, Q, "causal", bias, scale=scale)
        pairs = [(weights, core.weights), *((output, core.output) for output in outputs)]
        for ours, theirs in (*pairs, (links.weights[:, 0], core.weights.max(axis=1))):
            assert ours.dtype == dtype
            np.testing.assert_allclose(ours, theirs, rtol=np.finfo(dtype).eps / 2 + 1e-5, atol=2**-25)


def test_a_term_by_distance_in_float64_does_not_make_float32_wider():
    Q, V = some(200, 8, dtype=np.float32), some(200, 3, dtype=np.float32)
    head = streaming.Tiles(HeadInput(Q, Q, V, by_distance=some(200, 7), scale=np.float64(0.3)))
    weights, output = streaming.attended([head], True)
    made = [weights, output, streaming.attended([head], False)[1]]
    made.append(streaming.attended([head], False, each=lambda _, *parts: made.extend(parts))[1])
    assert {M.dtype for M in made} == {np.dtype(np.float32)}


LAYOUTS = {
    "a transpose": lambda M: np.ascontiguousarray(M.T).T,
    "rows from the end": lambda M: M[::-1].copy()[::-1],
    "every second column": lambda M: np.repeat(M, 2, axis=-1)[:, ::2],
    "columns from the end": lambda M: M[:, ::-1].copy()[:, ::-1],
    "the other byte order": lambda M: M.astype(M.dtype.newbyteorder()),
    "a subclass": lambda M: M.view(type("Mine", (np.ndarray,), {})),
    "lists": lambda M: M.tolist(),
    "np.matrix": np.matrix,
    "read only": lambda M: np.frombuffer(M.tobytes()).reshape(M.shape),
    "one row for all": lambda M: np.broadcast_to(M[:1], M.shape),
}


@pytest.mark.parametrize("n", [6, 150])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_an_array_lies_in_memory_does_not_matter(n, layout):
    allowed = some(n, n + 1, seed=4) > -1
    allowed.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # np.matrix is on its way out, but about
        shapes = (n, 4), (n + 1, 4), (n + 1, 3), (n, n + 1)
        laid = [LAYOUTS[layout](some(*shape, seed=seed)) for seed, shape in enumerate(shapes)]
    plain = [np.array(M, order="C", dtype=float) for M in laid]
    for mask, count in ((None, 3), (np.asfortranarray(allowed), 4)):
        weights, links, outputs = ways(*plain[:3], None if mask is None else allowed, *plain[3:count])
        ours = ways(*laid[:3], mask, *laid[3:count])
        assert type(ours[0]) is np.ndarray
        np.testing.assert_allclose(ours[0], weights, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(ours[1].keys, links.keys)
        np.testing.assert_allclose(ours[2], outputs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e3, 1e6, 1e12, 1e25, -1e12, 0.0, 1e-30, 1e-46])
def test_scores_of_any_size_give_weights_that_sum_to_one_and_the_winner_of_the_core(dtype, scale):
    Q, K, V = (some(200, 8, seed=n, dtype=dtype) for n in range(3))
    core = checked_attention(Q, K, V, scale=scale)
    weights, links, outputs = ways(Q, K, V, scale=scale)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-5)
    most, winner = core.weights.max(axis=1), core.weights.argmax(axis=1)
    assert (most - weights[np.arange(200), winner] <= 1e-3).all()
    assert (np.abs(links.weights[:, 0] - most) <= 1e-3).all()
    for output in outputs:
        np.testing.assert_allclose(output, core.output, rtol=0, atol=1e-2)


@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e14), (np.float32, 1e6)])
def test_the_fast_way_is_left_where_the_largest_sum_of_products_has_no_correct_digit(dtype, most):
    near = np.full((2, 64), math.sqrt(most / 64) * 0.9, dtype)
    nothing, V = near * 0, near[:, :1] * 0
    assert fits(near, near, V, scale=-1) and not fits(near * 1.2, near * 1.2, V)
    assert not fits(near, near, V, scale=-2) and not fits(nothing, nothing, V, scale=-np.finfo(dtype).max)
    assert fits(nothing, nothing, V + 0.9 * most) and not fits(nothing, nothing, V + 1.1 * most)
    large = dtype(1e15 if dtype is np.float32 else 1e140)
    assert not fits(nothing, nothing + 2 * large, V, scale=1e-20) and fits(nothing, nothing + large / 2, V)
    for more, is_fast in (
        ({"scale": most / 8}, True),
        ({"scale": most}, False),
        ({}, True),
        ({"sink": 1.0}, False),
    ):
        assert (tiles_of(HeadInput(*np.ones((3, 200, 4), dtype), **more)) is not None) == is_fast
    sizes = [tiles_of(HeadInput(*np.ones((3, n, 1), dtype))) is not None for n in (128, 129)]
    assert sizes == [False, True]


def test_numbers_that_vanish_raise_nothing_where_numpy_is_told_to_raise():
    Q = 30 * some(300, 8, dtype=np.float32)
    bias = np.where(np.tri(300, dtype=bool), 0, -100).astype(np.float32)
    with np.errstate(all="raise"):
        for threads in (1, 2):
            ways(Q, Q, Q, "causal", threads=threads)
            ways(Q, Q, Q, bias=bias, threads=threads)


@pytest.mark.parametrize("base_2", [True, False])
def test_scores_far_below_are_as_quick_as_others(base_2):
    # Exponentials that are no longer normal numbers took a hundred times as long.
    n = 700
    Q = some(n, 8, dtype=np.float32)
    steps = -0.15 * np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(np.float32)

    def best(bias=None, scale=None):
        timer = Timer(lambda: attend(Q, Q, Q, None, bias, scale, threads=1), timer=time.process_time)
        return min(timer.repeat(5, 1))

    with tiled(base_2=base_2):
        assert best(steps) < 4 * best(np.zeros_like(steps))
        assert best(scale=12.0) < 4 * best()


def test_powers_of_2_are_taken_only_where_numpy_has_them_for_this_processor(monkeypatch):
    introspect = pytest.importorskip("numpy.lib.introspect", reason="NumPy 1 does not tell")
    targets = {"X86_V4": True, "AVX512_SKX": True, "baseline(X86_V2)": False, None: False}
    for target, is_quick in targets.items():
        found = {} if target is None else {"exp2": {"ff": {"current": target}}}
        monkeypatch.setattr(introspect, "opt_func_info", lambda name, found=found: found)
        assert streaming.has_quick_exp2.__wrapped__() is is_quick


@pytest.mark.parametrize("n", [3, 5, 17, 300])
@pytest.mark.parametrize("d", [16, 50, 64, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_words_are_listed_in_order_although_blas_adds_them_up_unlike(n, d, dtype):
    words, which = some(4, d, dtype=dtype), np.random.default_rng(n).integers(0, 4, n)
    Q, K = some(n, d, seed=1, dtype=dtype), words[which]
    scores = (Q[:, np.newaxis].astype(float) * words.astype(float)).sum(axis=-1)
    weights = checked_attention(Q, K, K, scale=1 / math.sqrt(d)).weights
    for k in (1, 2, n):
        for row, found in zip(scores, heads_module.strongest(weights, k).keys, strict=True):
            assert found.tolist() == sorted(range(n), key=lambda j, row=row: (-row[which[j]], j))[:k]


@pytest.mark.parametrize("hidden", [nan, inf, -inf])
@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("mask", ["causal", "array"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_what_hides_behind_a_mask_is_not_seen_and_not_warned_of(hidden, n, mask, with_bias):
    Q, K, V = some(n, 4), some(n, 4, seed=1), some(n, 3, seed=2)
    bias = some(n, n) if with_bias else None
    allowed = np.tri(n, dtype=bool) if mask == "causal" else some(n, n, seed=3) > 0
    allowed[:, -6:] = False
    wanted = ways(Q, K, V, allowed, bias)
    K[-4], V[-2] = hidden, hidden
    if with_bias:
        bias[:, -3] = hidden
    got = ways(Q, K, V, allowed, bias)
    np.testing.assert_allclose(got[0], wanted[0], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(got[1].keys, wanted[1].keys)
    np.testing.assert_allclose(got[2], wanted[2], rtol=0, atol=1e-13)


BAD = [(where, bad) for where in ("Q", "K", "V", "bias") for bad in (nan, inf, -inf)]


@pytest.mark.parametrize(("where", "bad"), BAD[:-1])  # -inf in a bias is a mask
@pytest.mark.parametrize("n", [3, 150])
@pytest.mark.parametrize("mask", [None, "causal", "array"])
def test_what_is_not_finite_and_allowed_is_refused_in_the_words_of_the_core(where, bad, n, mask, monkeypatch):
    monkeypatch.setattr(heads_module, "BLOCK_CELLS", 1000)  # so that the rows come in many blocks
    given = {"Q": some(n, 4), "K": some(n, 4, seed=1), "V": some(n, 3, seed=2), "bias": some(n, n)}
    at = n * 4 // 5
    given[where][at:, 2] = bad  # the first is named
    allowed = None if mask is None else np.tri(n, k=int(mask == "array"), dtype=bool)
    mask = allowed if mask == "array" else mask
    with pytest.raises(InputError) as core:
        checked_attention(**given, mask=allowed, scale=0.5)
    for way in (attend, partial(attend, return_weights=False), partial(strongest_links, k=2)):
        with pytest.raises(InputError) as refused:
            way(**given, mask=mask, scale=0.5)
        assert refused.value.message == core.value.message
    assert f"{'key' if where in 'KV' else 'query'} {at}" in refused.value.message


def test_a_bias_that_float32_cannot_hold_masks_where_it_is_low_and_is_refused_where_it_is_high():
    for n in (4, 200):
        Q, bias = some(n, 2, dtype=np.float32), np.where(np.tri(n, dtype=bool), 0, -1e300)
        weights, _ = attend(Q, Q, Q, bias=bias)
        np.testing.assert_allclose(weights, attend(Q, Q, Q, "causal")[0], rtol=0, atol=1e-6)
        with pytest.raises(InputError, match="query 0 and key 1"):
            attend(Q, Q, Q, bias=-bias)


def test_a_text_that_grows_word_by_word_leaves_nothing_behind():
    Q, K, V = some(1, 2), some(3000, 2), some(3000, 1)
    attend(Q, K, V)
    tracemalloc.start()
    try:
        for n in range(1, 3000, 2):
            attend(Q, K[:n], V[:n])
        assert tracemalloc.get_traced_memory()[0] < 2**23
    finally:
        tracemalloc.stop()


def blas():
    libraries = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in libraries if one["user_api"] == "blas"]


def set_blas(count):
    """Set BLAS's threads in a thread that ends: of threads that live, threadpoolctl heeds the first alone."""
    setter = threading.Thread(target=threadpoolctl.threadpool_limits, args=(count,))
    setter.start()
    setter.join()


@pytest.fixture
def two_of_blas(monkeypatch):
    """BLAS with as many threads as somebody asked for, two where that can be."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    before = max(blas())
    set_blas(2)
    yield
    set_blas(before)


def test_as_many_threads_work_as_there_are_processors_to_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert pool.processors() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert pool.processors() == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_task_is_done_once_with_one_thread_of_blas_and_then_as_before(threads, two_of_blas):
    before, done, seen, reports = blas(), [], set(), []

    def worker():
        seen.update(blas())
        return done.append

    pool.run(range(50), worker, threads, reports.append)
    assert sorted(done) == list(range(50)) and seen == {1} and blas() == before
    assert reports == sorted(reports) and all(0 < part <= 1 for part in reports)


@pytest.mark.parametrize("where", ["here", "there"])
@pytest.mark.parametrize("when", ["while making ready", "at a task"])
def test_an_error_in_any_thread_ends_the_work_and_is_raised(where, when, two_of_blas):
    before, done, main, failed = blas(), [], threading.main_thread(), threading.Event()

    def fail():
        if (threading.current_thread() is main) == (where == "here"):
            failed.set()
            raise ZeroDivisionError

    def worker():
        if when == "while making ready":
            fail()

        def do(task):
            fail()
            failed.wait(60)  # however late the other thread begins
            time.sleep(0.001)
            done.append(task)

        return do

    with pytest.raises(ZeroDivisionError):
        pool.run(range(2000), worker, 2)
    assert len(done) < 1000 and blas() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_the_work(threads, two_of_blas):
    before, reports = blas(), []
    Q = some(2000, 4)

    def report(part):
        reports.append(part)
        signal.raise_signal(signal.SIGINT)

    with tiled(4, 16), pytest.raises(KeyboardInterrupt):
        streaming.attended([streaming.Tiles(HeadInput(Q, Q, Q, scale=0.5))], False, threads, report)
    assert len(reports) == 1 and blas() == before
    assert pool._helpers(1).submit(len, "ab").result(1) == 2  # a helper has nothing left to do


def test_a_child_has_helpers_of_its_own():
    done = []
    pool.run(range(8), lambda: done.append, 2)
    if not (child := os.fork()):
        pool.run(range(8), lambda: done.append, 2)
        os._exit(0 if len(done) == 16 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and len(done) == 8


@pytest.mark.parametrize("seconds", [(0.02, 0.1), (0.1, 0.02)])
def test_two_who_work_at_once_leave_blas_as_it_was_whoever_leaves_first(seconds, two_of_blas):
    before, seen = blas(), []

    def work(pause):
        pool.run(range(3), lambda: time.sleep(pause) or (lambda task: seen.extend(blas())), 2)

    other = threading.Thread(target=work, args=seconds[:1])
    other.start()
    work(seconds[1])
    other.join()
    assert set(seen) <= {1} and blas() == before


def test_a_report_may_itself_attend(two_of_blas):
    Q, within = some(200, 4), []
    head = streaming.Tiles(HeadInput(Q, Q, Q, scale=0.5))
    streaming.attended([head], False, 2, lambda part: within.append(attend(Q, Q, Q, "causal")))
    assert within
