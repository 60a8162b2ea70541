"""What the page computes is what attn computes."""

import json
import random
import re
from urllib.parse import urlencode

import numpy as np
import pytest

from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings import Settings
from attn_cli.text.tokenize import tokenize
from attn_cli.trace import Trace
from attn_cli.vectors.lookup import open_table
from tests.bench.page import many_heads
from tests.browser import FOX, made as write_page
from tests.models.checkpoints.by_hand import small_gpt_oss, word_pieces
from tests.models.checkpoints.test_parity import PAIRS, made
from tests.shell import record
from tests.thorough import often

WORDS = 3000
STEPS = ("q", "k", "v", "scores", "scaled_scores", "position_scores", "masked_scores", "weights", "output")


def test_a_long_page_of_many_heads_is_small_and_each_is_right_to_a_step_when_it_is_opened(opened, tmp_path):
    weights = many_heads()
    np.savez(tmp_path / "w.npz", attentions=weights)
    path = write_page(tmp_path, "show", str(tmp_path / "w.npz"), "-f", "page")
    assert path.stat().st_size < 2_000_000
    opened.go(path)
    for layer, head in ((3, 7), (0, 0), (5, 0)):  # the last is the one that is held in full
        opened.page.locator("#grid button").nth(12 * layer + head).click()
        opened.page.wait_for_function(f"() => document.getElementById('layer-choice').value === '{layer}'")
        found, right = np.array(saved(opened)["weights"]), weights[layer, head]
        within = right.max(axis=1, keepdims=True) * (0.5 / 63 + 1e-6) if layer < 5 else 1e-6
        assert (np.abs(found - right) <= within).all()
    assert "71 of 72 heads are held as rounded weights, right to 0.008 of" in opened.page.inner_text("footer")


def close(found: object, expected: object) -> bool:
    one, other = (np.array(x, dtype=float) for x in (found, expected))  # None becomes NaN
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=1e-6, equal_nan=True)


def check(found: dict, trace: Trace) -> None:
    right = trace.to_dict(steps=True)
    for name in ("query_tokens", "key_tokens", "mask", "unknown", "dropped", "score", "head"):
        assert found[name] == right[name], name
    for name in ("scale", "temperature", "weights", "output", "x_query", "x_key"):
        assert close(found[name], right[name]), name
    heads = {head.name: head for head in trace.heads}
    for head in found["heads"]:
        for name in STEPS:
            expected = getattr(heads[head["name"]], name)
            if name == "masked_scores":
                expected = np.where(np.isneginf(expected), np.nan, expected)
            assert close(head[name], expected), (head["name"], name)
    assert [head["name"] for head in found["heads"]] == list(trace.head_names)


ODD = "don't fox’s café U.S 3.14 zwxings Qzx-9 №7 … -- & 😀 naïve A² x_y".split()  # noqa: SIM905


def some_sentence(draw: random.Random, words: list[str]) -> str:
    chosen = [draw.choice(words if draw.random() < 0.8 else ODD) for _ in range(draw.randint(1, 12))]
    return " ".join(draw.choice((str, str.capitalize, str.upper))(word) for word in chosen)


def some_settings(draw: random.Random) -> Settings:
    window = f"window:{draw.randint(0, 3)}"
    return Settings(
        head=draw.choice(["relations", "subject", "next", "mean"]),
        score=draw.choice(["scaled", "dot", "cosine"]),
        temperature=draw.choice([0.05, 0.5, 1.0, 2.0, 10.0]),
        mask=draw.choice([None, "causal", window, f"{window}:{draw.randint(0, 2)}"]),
        every_head=True,
    )


def saved(opened) -> dict:
    """Return what the page saves, without a download for each."""
    kept = "() => { URL.createObjectURL = (blob) => { window.saved = blob.text(); return 'data:,'; }; }"
    opened.page.evaluate(kept)
    opened.page.evaluate("document.getElementById('save-json').click()")
    return json.loads(opened.page.evaluate("window.saved"))


def test_a_sentence_typed_into_the_page_has_the_numbers_of_attn(opened):
    table = open_table("word2vec")
    words = [word.decode() for word in next(table.rows()).words[:WORDS] if word.isalpha()]
    opened.make("page", FOX, "--words", str(WORDS))
    compared, draw = 0, random.Random(17)
    while compared < often(90):
        text, settings = some_sentence(draw, words), some_settings(draw)
        tokens = tokenize(text).tokens
        others = {token.lower() for token in tokens} - {*words}
        if not tokens or any(word in table.find([word]) for word in others):
            continue
        chosen = {"head": settings.head, "score": settings.score, "t": settings.temperature}
        opened.follow("#" + urlencode({"text": text, "mask": settings.mask or "none"} | chosen))
        opened.page.wait_for_function("text => document.getElementById('sentence').value === text", arg=text)
        check(saved(opened), trace_text("self", text, None, settings))
        compared += 1


@pytest.mark.parametrize("made_at", ["1", "4"])
def test_a_temperature_divides_the_distances_of_a_model_s_own(opened, made_at, transformers, tmp_path):
    made(transformers, PAIRS["t5"], 0, tmp_path)
    word_pieces(tmp_path)
    command = ("the cat walks", "-m", str(tmp_path), "--head", "1")
    opened.make("page", *command, "-t", made_at, link="#view=head")
    for temperature in ("2", "0.5"):
        opened.enter("#temperature-number", temperature)
        assert close(saved(opened)["weights"], record("self", *command, "-t", temperature)["weights"])


def test_a_page_computes_with_a_sink(opened, tokenizers, tmp_path):
    command = ("dabca", "-m", small_gpt_oss(tmp_path / "gpt_oss"), "--head", "1")
    opened.make("page", *command, link="#view=head")
    opened.enter("#temperature-number", "2")
    expected, found = record("self", *command, "-t", "2", "--steps"), saved(opened)
    assert close(found["weights"], expected["weights"])
    (head,) = (one for one in found["heads"] if one["name"] == "1")
    assert head["sink_score"] == pytest.approx(expected["heads"][0]["sink_score"])
    told = re.search(r"^(\w).* The sink takes ([\d.]+);", opened.text("#row-says"))
    right = expected["sink"][expected["query_tokens"].index(told[1])]
    assert float(told[2]) == pytest.approx(right, rel=0.01)


def test_a_button_goes_between_weights_and_norms_which_follow_what_is_typed(opened):
    def shown():
        rows = opened.page.locator("#matrix tbody tr").all_inner_texts()
        return np.array([[0 if n == "–" else float(n) for n in row.split()[1:]] for row in rows])

    def norms(*args):
        return record("self", *args, "--measure", "norm")["norms"]

    opened.make("page", FOX, "--measure", "norm", "--words", "200")
    np.testing.assert_allclose(shown(), norms(FOX), atol=0.0051)
    opened.page.click("#measure")
    np.testing.assert_allclose(shown().sum(axis=1), 1, atol=0.05)
    opened.page.click("#measure")
    opened.enter("#sentence", "the dog jumped")
    np.testing.assert_allclose(shown(), norms("the dog jumped"), atol=0.0051)
    opened.page.goto("about:blank")  # a browser would keep the page that it has at this address
    opened.make("page", FOX, "-p", "roles-deep", "--measure", "norm", link="#layer=1&head=2&t=2")
    expected = norms(FOX, "-p", "roles-deep", "--layer", "1", "--head", "2", "-t", "2")
    np.testing.assert_allclose(shown(), expected, atol=0.0051)
