"""Answers by the thousand, right and wrong, and whether `attn check` names what was done wrong.

`python -m tests.fuzz.answers [N]` draws N exercises of many shapes; for each mistake that its shape allows, an answer
with that mistake alone, an answer without, and one with two. What is right is computed here anew, in plain NumPy.
"""

import itertools
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from attn_cli import Settings
from attn_cli.teach.answer_key import read_answer_key
from attn_cli.teach.grade import grade
from attn_cli.teach.submission import read_submission

CODES = ("no-scaling", "scaled-by-d", "softmax-axis", "transposed-w", "mask-inverted", "causal-corner")
CODES += ("k-v-swapped", "mask-after-softmax", "heads-not-averaged")
SHOWN = ("q", "k", "v", "scores", "scaled_scores", "masked_scores", "weights", "output")
MARKS = (np.nan, -np.inf, -1e9, -1e4)  # what programs put where a mask is
ROUNDINGS = (2, 3, 4, None)
TOGETHER = {"no-scaling", "scaled-by-d"}  # cannot be made both


def exercise(draw, least=2):
    n_q, n_k = int(draw.integers(least, 7)), int(draw.integers(least, 7))
    heads = int(draw.choice([1, 1, 1, 2, 3]))
    d_k, d_v = int(draw.integers(2, 6)), int(draw.integers(2, 6))
    d_v = d_k if draw.random() < 0.5 else d_v
    record = {"heads": heads}
    kind = draw.choice(["qkv", "self", "cross"])
    n_k = n_q if kind == "self" else n_k
    if kind == "qkv":
        record |= {"Q": normal(draw, n_q, heads * d_k), "K": normal(draw, n_k, heads * d_k)}
        record["V"] = normal(draw, n_k, heads * d_v)
    else:
        d = heads * d_k if draw.random() < 0.6 else int(draw.integers(2, 7))
        record["X"] = normal(draw, n_q, d)
        if kind == "cross":
            record["context"] = normal(draw, n_k, d)
        out_in = draw.random() < 0.3
        for name, width in (("W_q", d_k), ("W_k", d_k), ("W_v", d_v)):
            W = normal(draw, d, heads * width) / d**0.5 * 1.5
            record[name] = W.T if out_in else W
            if draw.random() < 0.3:
                record[name.replace("W", "b")] = normal(draw, heads * width)
        record["layout"] = "out-in" if out_in else "in-out"
    if draw.random() < 0.9:
        record["score"] = "scaled" if draw.random() < 0.9 else "dot"
    named = draw.choice(["none", "causal", "causal-bottom-right", "window:1", "array"])
    if named == "array":
        mask = draw.random((n_q, n_k)) < 0.6
        mask[np.arange(n_q), draw.integers(0, n_k, n_q)] = True
        record["mask"] = mask
    elif named != "none":
        record["mask"] = str(named)
    return record


def normal(draw, *shape):
    return np.round(draw.standard_normal(shape), 3)


def mask_of(record, n_q, n_k, corner=False):
    """True = may attend; with `corner`, causal from the other one."""
    named = record.get("mask")
    if named is None or not isinstance(named, str):
        return named
    apart = np.arange(n_k) - np.arange(n_q)[:, np.newaxis]
    if named.startswith("window"):
        return np.abs(apart) <= int(named.partition(":")[2])
    return apart <= (n_k - n_q if (named == "causal-bottom-right") != corner else 0)


def softmax(scores, axis):
    with np.errstate(all="ignore"):
        exps = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return exps / exps.sum(axis=axis, keepdims=True)


def solved(record, mistakes=(), draw=None, rounded=None):
    """Return every step as a student would hand it in who makes these mistakes; `rounded` rounds on the way."""
    keep = (lambda x: x) if rounded is None else (lambda x: np.round(x, rounded))
    heads = record["heads"]
    q, k, v = map(keep, projected(record, "transposed-w" in mistakes, draw))
    if "k-v-swapped" in mistakes:
        k, v = v, k
    mask = mask_of(record, len(q), len(k), "causal-corner" in mistakes)
    if mask is not None and "mask-inverted" in mistakes:
        mask = ~mask
    after = "mask-after-softmax" in mistakes
    axis = -2 if "softmax-axis" in mistakes else -1
    found = {"q": q, "k": k, "v": v}
    steps = {name: [] for name in SHOWN[3:]}
    for h in range(heads):
        qh, kh, vh = (np.split(m, heads, axis=1)[h] for m in (q, k, v))
        scaled = scores = keep(qh @ kh.T)
        d_k = qh.shape[1]
        if record.get("score", "scaled") == "scaled":
            divisor = 1 if "no-scaling" in mistakes else d_k if "scaled-by-d" in mistakes else d_k**0.5
            scaled = keep(scores / divisor)
        masked = scaled if mask is None or after else np.where(mask, scaled, -np.inf)
        weights = softmax(masked, axis)
        if mask is not None and after:
            weights = np.where(mask, weights, 0)
        if not np.isnan(weights).all():  # a softmax over nothing
            weights = np.nan_to_num(weights)
        weights = keep(weights)
        for name, value in zip(steps, (scores, scaled, masked, weights, weights @ vh), strict=True):
            steps[name].append(value)
    found |= {name: parts[0] if heads == 1 else np.array(parts) for name, parts in steps.items()}
    for name in ("weights", "output") if heads > 1 else ():
        whole = found[name]
        ways = (lambda m=whole: m, lambda m=whole: m[0], lambda m=whole: m.sum(axis=0))
        found[name] = ways[draw.integers(3)]() if "heads-not-averaged" in mistakes else whole.mean(axis=0)
    return found


def projected(record, transposed, draw):
    if "Q" in record:
        return record["Q"], record["K"], record["V"]
    W = [record[name] if record["layout"] == "in-out" else record[name].T for name in ("W_q", "W_k", "W_v")]
    if transposed:
        square = [i for i in range(3) if W[i].shape[0] == W[i].shape[1]]
        chosen = draw.permutation(square)[: draw.integers(1, len(square) + 1)]
        W = [w.T if i in chosen else w for i, w in enumerate(W)]
    X, context = record["X"], record.get("context", record["X"])
    b = [record.get(name, 0) for name in ("b_q", "b_k", "b_v")]
    return X @ W[0] + b[0], context @ W[1] + b[1], context @ W[2] + b[2]


def possible(record):
    q, k, v = projected(record, False, None)
    mask = mask_of(record, len(q), len(k))
    scaled = record.get("score", "scaled") == "scaled" and q.shape[1] // record["heads"] > 1
    is_causal = isinstance(record.get("mask"), str) and record["mask"].startswith("causal")
    checks = {
        "no-scaling": scaled,
        "scaled-by-d": scaled,
        "softmax-axis": True,
        "transposed-w": "X" in record and any(record[W].shape[0] == record[W].shape[1] for W in ("W_q", "W_k", "W_v")),
        "mask-inverted": mask is not None,
        "causal-corner": is_causal and len(q) != len(k),
        "k-v-swapped": k.shape == v.shape,
        "mask-after-softmax": mask is not None and not mask.all(),
        "heads-not-averaged": record["heads"] > 1,
    }  # fmt: skip
    return [code for code, fits in checks.items() if fits]


def handed(draw, steps, digits):
    """Return some of the steps, rounded; always one of the last two."""
    names = [name for name in SHOWN if draw.random() < 0.5]
    names += [] if {"weights", "output"} & set(names) else [str(draw.choice(["weights", "output"]))]
    return {name: steps[name] if digits is None else np.round(steps[name], digits) for name in names}


def dressed(draw, answer, heads):
    """Return the same answer as another program would write it: marks where masked, heads apart, an axis more."""
    made = dict(answer)
    if "masked_scores" in made:
        shut = np.isneginf(made["masked_scores"])
        mark = draw.choice(MARKS)
        made["masked_scores"] = np.where(shut, mark, made["masked_scores"])
        for name in ("scores", "scaled_scores"):
            if name in made and draw.random() < 0.5:
                made[name] = np.where(shut, mark, made[name])
        if heads == 1 and "weights" in made and draw.random() < 0.3:
            made["weights"] = np.where(shut, np.nan, made["weights"])
    if heads > 1 and draw.random() < 0.5:
        made |= {name: np.array(np.split(made[name], heads, axis=1)) for name in "qkv" if name in made}
    if draw.random() < 0.2:
        made = {name: matrix[np.newaxis] for name, matrix in made.items()}
    return made


def written(folder, name, record, suffix="json"):
    path = Path(folder) / f"{name}.{suffix}"
    if suffix == "npz":
        np.savez(path, **{key: matrix.astype(np.float32) for key, matrix in record.items()})
        return path
    path.write_text(json.dumps(record, default=np.ndarray.tolist))
    return path


def alike(steps, others, answer, digits):
    """Tell whether two ways of computing cannot be told apart by what an answer shows of them."""
    reach = max(1e-3, 0 if digits is None else 0.5 * 10**-digits) * 1.001
    with np.errstate(invalid="ignore"):
        return all(
            steps[name].shape == others[name].shape
            and np.array_equal(np.isneginf(steps[name]), np.isneginf(others[name]))
            and np.nan_to_num(np.abs(steps[name] - others[name])).max() <= 2 * reach
            for name in answer
        )


def outcome(found, codes, steps, answer, digits, singly):
    """Say in a word how an answer was judged; capitals are a fault."""
    if not codes:
        return "right" if found.ok else "CALLED WRONG"
    if found.ok:
        return "the same within rounding" if alike(steps, singly[()], answer, digits) else "MISSED"
    if len(codes) == 2:
        if found.likely is None:
            return "not named"
        if found.likely in codes and alike(steps, singly[(found.likely,)], answer, digits):
            return "one of them alone gives the same"
        return "NAMED AS ONE OF THEM" if found.likely in codes else "NAMED AS ANOTHER"
    if found.likely == codes[0]:
        return "named"
    if codes[0] in found.candidates:
        return "listed"
    return "FALSELY NAMED" if found.likely else "NOT EXPLAINED"


def campaign(count, seed, told=None, least=2):
    """Return how answers were judged, counted by mistake; `told` gets each that was judged wrongly."""
    counts = {code: Counter() for code in (*CODES, "right", "two")}
    with tempfile.TemporaryDirectory() as folder:
        for n in range(count):
            draw = np.random.default_rng([seed, n])
            record = exercise(draw, least)
            codes = possible(record)
            digits = ROUNDINGS[n % len(ROUNDINGS)]
            on_the_way = digits if n % 3 == 0 else None
            singly = {}
            pairs = [pair for pair in itertools.combinations(codes, 2) if set(pair) != TOGETHER]
            two = [pairs[int(draw.integers(len(pairs)))]] if pairs else []
            for mistakes in ((), *((code,) for code in codes), *two):
                own = np.random.default_rng([seed, n, *map(CODES.index, mistakes[:1])])  # which W, which head
                steps = singly[mistakes] = solved(record, mistakes, own, on_the_way)
                answer = handed(draw, steps, digits)
                suffix = "npz" if n % 5 == 0 else "json"
                key = read_answer_key(written(folder, "right", record), Settings())
                handed_in = written(folder, "answer", dressed(draw, answer, record["heads"]), suffix)
                found = grade(read_submission(handed_in), key, 1e-3)
                said = outcome(found, mistakes, steps, answer, digits, singly)
                counts["two" if len(mistakes) > 1 else (*mistakes, "right")[0]][said] += 1
                if told and said.isupper():
                    told(n, mistakes, said, found, record, answer)
    return counts


if __name__ == "__main__":
    for name, found in campaign(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, 0, print).items():
        print(f"{name:20}", ", ".join(f"{how} {many}" for how, many in found.most_common()))
