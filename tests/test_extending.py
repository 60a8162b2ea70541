"""A score, a mask rule and a format from outside: one entry of a registry each, and everything else follows."""

import ast
import json
import math
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import attn_cli
from attn_cli import Settings, attend, trace_masked, trace_self
from attn_cli.core.masks import MASKS, MaskRule
from attn_cli.core.scores import SCORES, ByHand, Lines, Score, Terms
from attn_cli.errors import UsageError
from attn_cli.io.terminal import Terminal
from attn_cli.render.formats import FORMATS, render
from attn_cli.render.views.mask import mask_lab
from attn_cli.settings.output import View, schema_text
from tests.browser import Opened, chromium
from tests.models.checkpoints.by_hand import small_gpt2
from tests.render.page.test_record import held
from tests.shell import python
from tests.small_models import trace_checkpoint

TEXT = "she likes hot coffee"
GIVEN = {"embedding": "random", "dim": 3, "projection": "identity"}


def nearness(Q, K):
    """Minus the squared distance of each query from each key."""
    return -((Q[..., :, np.newaxis, :] - K[..., np.newaxis, :, :]) ** 2).sum(axis=-1)


def by_hand(q, k, score, write):
    terms = [(f"-({write(a)} - {write(b)})²", -((a - b) ** 2)) for a, b in zip(q, k, strict=True)]
    return ByHand("-|q-k|²", terms)


NEAR = Score(
    of=nearness, is_scaled=True, noun="nearness", help="near is minus the squared distance", by_hand=by_hand,
    lines={"numpy": Lines("-((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(axis=-1)")},
    javascript=Terms("-((a - b) ** 2)", "-(q - k)²"), symbol="-|q-k|²", column="-|q-k|²", matrix="-|q-k|²",
    ascii_matrix="-|Q-K|^2", latex=None,
)  # fmt: skip
STRIDE = MaskRule(
    words=lambda is_self, n: f"A query may look at every key whose place differs by a multiple of {n}.",
    comment="Strided mask: a query sees the keys at multiples of {} from its own place.",
    lines={"numpy": "(np.arange(n_q)[:, None] - np.arange(n_k)) % {} == 0"},
    allowed=lambda i, j, n_q, n_k, n: (i - j) % n == 0,
    javascript="(i - j) % a === 0",
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(SCORES, "near", NEAR)
    monkeypatch.setitem(MASKS, "stride:N", STRIDE)


def shown(trace, **view):
    return render(trace, View(width=300, **view), Terminal(300))


def check_script(trace):
    names = {}
    exec(compile(shown(trace, format="code:numpy"), "script", "exec"), names)
    for name in ("weights", "output"):
        np.testing.assert_allclose(names[name], getattr(trace, name), atol=1e-12)


def test_a_score_from_outside_gets_weights_table_json_and_script_right():
    trace = trace_self(TEXT, Settings(score="near", **GIVEN))
    X = trace.x_query
    exps = np.exp(np.array([[-sum((a - b) ** 2) for b in X] for a in X]) / math.sqrt(3))
    np.testing.assert_allclose(trace.weights, exps / exps.sum(axis=1, keepdims=True), atol=1e-12)
    assert "weights = softmax(-|q-k|² / √3)" in shown(trace)
    record = json.loads(shown(trace, format="json", steps=True))
    assert record["score"] == "near" and record["scale"] == pytest.approx(1 / math.sqrt(3))
    np.testing.assert_allclose(record["heads"][0]["scores"], nearness(X, X))
    check_script(trace)
    # The arithmetic of a row is that of the score.
    trace = trace_self(TEXT, Settings(score="near", query="coffee", **GIVEN))
    page, strongest = shown(trace), int(np.argmax(trace.weights[3]))
    a, b = trace.x_query[3], trace.x_query[strongest]
    start = f"  {trace.key_tokens[strongest]}: -|q-k|² = "
    (line,) = (line for line in page.splitlines() if line.startswith(start))
    assert line.count("²") == 1 + len(a)
    assert float(line.rpartition("=")[2]) == pytest.approx(-sum((a - b) ** 2), abs=1e-3)
    assert "-|q-k|²" in next(line for line in page.splitlines() if line.startswith("key "))


def test_the_heads_of_a_model_are_joined_by_their_outputs_under_the_score(tmp_path, tokenizers):
    settings, folder = Settings(score="near", layer=0, head="all"), small_gpt2(tmp_path / "gpt2")
    trace = trace_checkpoint("self", "dabca", None, settings, folder, keep_weights=True)
    joined = np.hstack([head.output for head in trace.heads]) @ trace.W_o + trace.b_o
    np.testing.assert_allclose(trace.layer_output, joined, atol=1e-6)


def test_a_score_that_the_fast_way_does_not_know_is_computed_the_readable_way_in_long_texts():
    text = " ".join(f"w{i % 97}" for i in range(1100))  # more weights than are held
    trace = trace_self(text, Settings(score="near", **GIVEN))
    assert trace.condensed
    i = int(trace.rows[0])
    exps = np.exp(nearness(trace.x_query[i : i + 1], trace.x_query)[0] / math.sqrt(3))
    np.testing.assert_allclose(trace.weights[0], exps / exps.sum(), atol=1e-9)


def test_a_mask_rule_from_outside_gets_weights_words_json_and_script_right_and_by_the_fast_way():
    trace = trace_masked(TEXT, Settings(mask="stride:2", **GIVEN))
    i, j = np.indices((4, 4))
    np.testing.assert_array_equal(trace.mask, (i - j) % 2 == 0)
    assert not trace.weights[(i - j) % 2 == 1].any()
    assert "mask stride:2" in shown(trace)
    assert json.loads(shown(trace, format="json"))["mask"] == trace.mask.tolist()
    check_script(trace)
    assert "mask = torch.tensor(" in shown(trace, format="code:torch")  # the rule has no line for it
    said = [block.text for block in mask_lab(trace, View()) if hasattr(block, "text")]
    assert "A query may look at every key whose place differs by a multiple of 2." in said
    Q, K, V = np.random.default_rng(0).standard_normal((3, 300, 8))
    i, j = np.indices((300, 300))
    for found, wanted in zip(attend(Q, K, V, "stride:3"), attend(Q, K, V, (i - j) % 3 == 0), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("settings", [{"score": "fear"}, {"mask": "stride:x"}, {"mask": "strid"}])
def test_what_no_registry_holds_is_refused(settings):
    with pytest.raises(ValueError, match=r"cannot be|There is no") as error:
        trace_self(TEXT, Settings(**settings, **GIVEN))
    assert ("near" if "score" in settings else "stride:N") in f"{error.value} {error.value.hint}"


WRITTEN = sorted({*FORMATS} - {"figure", "npy", "parquet", "code:torch", "code:keras"})


@pytest.mark.parametrize("name", WRITTEN)
def test_every_format_has_a_score_and_a_mask_from_outside(name):
    trace = trace_masked(TEXT, Settings(score="near", mask="stride:2", **GIVEN))
    page = shown(trace, format=name)
    if name in ("json", "jsonl"):
        jsonschema.validate(json.loads(page), json.loads(schema_text()))
    assert "coffee" in page


def test_a_score_that_lacks_what_a_format_needs_is_refused_in_one_line_and_a_mask_is_held_whole(monkeypatch):
    monkeypatch.setitem(SCORES, "near", NEAR._replace(javascript=None))
    for format, said in (("code:torch", "has no lines for PyTorch."), ("page", "has no JavaScript")):
        with pytest.raises(UsageError, match=f"The score near {said}") as error:
            shown(trace_self(TEXT, Settings(score="near", **GIVEN)), format=format)
        assert "\n" not in str(error.value)
    monkeypatch.setitem(MASKS, "stride:N", STRIDE._replace(javascript=""))
    record = held(shown(trace := trace_self(TEXT, Settings(mask="stride:2", **GIVEN)), format="page"))
    assert record["maskLabel"] == "stride:2" and (record["allowed"] > 0).tolist() == trace.mask.tolist()


def test_a_page_computes_a_score_and_a_mask_from_outside(tmp_path):
    trace = trace_self(TEXT, Settings(score="near", mask="stride:2", **GIVEN))
    (tmp_path / "near.html").write_text(shown(trace, format="page"), encoding="utf-8")
    with chromium() as browser:
        opened = Opened(browser.new_page())
        opened.go(tmp_path / "near.html")
        page = opened.page
        np.testing.assert_allclose(opened.record()["weights"], trace.weights, atol=1e-6)
        assert page.locator("#mask-choice").input_value() == "stride"
        assert [page.locator(f"#window-{side}").is_visible() for side in ("left", "right")] == [True, False]
        opened.enter("#window-left", "3")
        page.click("#more summary")
        page.select_option("#score-choice", "dot")
        saved, other = opened.record(), Settings(score="dot", mask="stride:3", **GIVEN)
        np.testing.assert_allclose(saved["weights"], trace_self(TEXT, other).weights, atol=1e-6)
        assert (saved["score"], opened.complaints) == ("dot", [])


FORMAT = '''
"""A result as Python's own literal."""

from attn_cli.render.formats import FORMATS, Format, Written


def literal(result, view, terminal):
    return Written(repr(result.record(view)) + "\\n")


FORMATS["literal"] = Format("record", literal, (".literal",))
'''
EACH = "import json; from tests.shell import told; print(json.dumps([told(*one) for one in json.loads(sys.argv[1])]))"


def test_a_format_is_one_file_and_every_command_that_has_a_record_writes_it(tmp_path):
    package = Path(attn_cli.__file__).parent
    shutil.copytree(package, tmp_path / "attn_cli", ignore=shutil.ignore_patterns("__pycache__"))
    if not (package / "data").exists():
        (tmp_path / "data").symlink_to(package.parent / "data")
    (tmp_path / "attn_cli" / "render" / "formats" / "literal.py").write_text(FORMAT)
    lookup, compare = ["lookup", "colour", "color=black"], ["compare", TEXT, "--vary", "score=scaled,dot"]
    commands = [["self", TEXT], lookup, compare, ["exercise"]]
    runs = [[*one, "-f", form] for one in commands for form in ("literal", "json")]
    runs += [["self", TEXT, "-o", "kept.literal"], ["self", "--help"]]
    ran = python(EACH, json.dumps(runs), cwd=tmp_path)
    assert ran.code == 0, ran.err
    *written, nothing, help = json.loads(ran.out)
    for literal, known in zip(written[::2], written[1::2], strict=True):
        assert ast.literal_eval(literal) == json.loads(known)
    assert nothing == "" and "literal" in help
    assert ast.literal_eval((tmp_path / "kept.literal").read_text())["query_tokens"] == TEXT.split()
