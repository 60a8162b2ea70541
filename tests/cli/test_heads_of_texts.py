"""attn heads --texts: every head over many texts, its measures with their spread."""

import csv
import io
import json

import numpy as np
import pytest

from tests.cli.tables import typed
from tests.cli.test_heads import record
from tests.models.checkpoints.by_hand import small_bert
from tests.shell import attn, here

LINES = ["the cat walking home", "", "a b", "the a"]


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(LINES) + "\n")
    return str(tmp_path / "t.txt")


def weights_of(text, *options):
    """Every head of every layer (layers, heads, n, n), as attn self shows them."""
    ran = here(
        "self", text, *options, "--head", "all", "--layer", "all", "-f", "json", "--fields", "heads.weights"
    )
    heads = [head["weights"] for head in json.loads(ran.out)["heads"]]
    return np.array(heads).reshape(2, -1, *np.shape(heads[0]))


@pytest.mark.parametrize("model", ["bert", "language"])
def test_means_and_spreads_are_those_of_each_text_alone(model, texts, tmp_path, tokenizers):
    options = ("-m", small_bert(tmp_path / "bert")) if model == "bert" else ("-p", "language")
    found = record("--texts", texts, *options)
    alone = [record(line, *options) for line in LINES if line]
    assert found["texts"] == 3 and found["tokens"] == sum(len(one["query_tokens"]) for one in alone)
    heads = [[head for layer in one["layers"] for head in layer["heads"]] for one in alone]
    assert len(found["heads"]) == len(heads[0])
    for head, *of_texts in zip(found["heads"], *heads, strict=True):
        assert head["head"] == of_texts[0]["head"] and sum(head["names"].values()) == 3
        assert head["names"][head["name"]] == max(head["names"].values())
        each = {"entropy": [one["entropy"] for one in of_texts]}
        each |= {name: [one["shares"][name] for one in of_texts] for name in of_texts[0]["shares"]}
        for name, values in each.items():
            values = [value for value in values if value is not None]
            assert head[name]["texts"] == len(values)
            if values:
                assert head[name]["mean"] == pytest.approx(np.mean(values), abs=1e-12)
                assert head[name]["spread"] == pytest.approx(np.std(values), abs=1e-9)


def test_distance_and_sink_are_what_their_words_say(tmp_path, tokenizers):
    options = ("-m", small_bert(tmp_path / "bert"))
    (tmp_path / "one.txt").write_text("the cat walking home\n")
    found = record("--texts", str(tmp_path / "one.txt"), *options)
    every = weights_of("the cat walking home", *options)
    for head in found["heads"]:
        W = every[head["layer"], int(head["head"])]
        n = range(len(W))
        assert head["distance"]["mean"] == pytest.approx(
            np.mean([sum(W[i, j] * abs(i - j) for j in n) for i in n])
        )
        sinks = [sum(W[i, j] for i in n if i != j) / (len(W) - 1) for j in n]
        assert head["sink"]["mean"] == pytest.approx(max(sinks)) and head["sink"]["spread"] == 0


def test_rows_hold_every_measure_and_parquet_the_same(texts, tmp_path):
    ran = here("heads", "--texts", texts, "-f", "csv")
    rows = [*csv.DictReader(io.StringIO(ran.out))]
    found = record("--texts", texts)
    assert len(rows) == 11 and ran.code == 0
    for row, head in zip(rows, found["heads"], strict=True):
        assert row["head"] == head["head"] and float(row["sink_mean"]) == pytest.approx(head["sink"]["mean"])
    parquet = pytest.importorskip("pyarrow.parquet")
    assert here("heads", "--texts", texts, "-o", str(tmp_path / "h.parquet")).code == 0
    table = parquet.read_table(tmp_path / "h.parquet").to_pylist()
    assert [one["head"] for one in table] == [row["head"] for row in rows]
    assert table[0]["entropy_mean"] == pytest.approx(float(rows[0]["entropy_mean"]))
    assert table[0]["separators_mean"] is None and rows[0]["separators_mean"] == ""


def test_a_line_of_the_screen_for_each_head_and_nothing_wider_than_eighty(texts):
    out = here("heads", "--texts", texts, "-p", "language", "--width", "80").out
    assert sum(line[:2] in ("0.", "1.", "2.") and "±" in line for line in out.splitlines()) == 24
    assert max(map(len, out.splitlines())) <= 80 and "24 heads over 3 texts" in out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--texts", "t.txt", "--layer", "7"), 2, "There is no layer 7"),
        (("--texts", "none.txt"), 66, "none.txt"),
        (("--texts", "empty.txt"), 65, "There is no text"),
        (("--texts", "dots.txt"), 65, "Line 2: "),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_line(args, code, said, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "dots.txt").write_text("the cat\n...\n")
    ran = here("heads", *args)
    assert (ran.code, ran.out) == (code, "") and said in ran.err and ran.err.count("\n") == 1


def test_a_note_on_one_line_says_which_and_words_alone_have_no_sink(tmp_path):
    (tmp_path / "t.txt").write_text("the cat\n\nzzqqj the\n")
    notes = record("--texts", str(tmp_path / "t.txt"))["notes"]
    assert any(note.startswith("Line 3: ") and "zzqqj" in note for note in notes)
    (tmp_path / "t.txt").write_text("cat\ndog\n")
    found = record("--texts", str(tmp_path / "t.txt"))
    assert found["notes"][0].startswith("One key") and found["heads"][0]["sink"]["mean"] is None
    assert "strongest sink" not in here("heads", "--texts", str(tmp_path / "t.txt")).out


def test_texts_come_down_a_pipe():
    ran = attn("heads", "--texts", "-", "-f", "jsonl", input="The cat sat.\nThe dog ran.\n")
    assert ran.code == 0 and json.loads(ran.out)["texts"] == 2


def test_what_hides_masks_or_warms_a_models_heads_does_so_here_too(tmp_path, tokenizers):
    folder = small_bert(tmp_path / "bert")
    for options in typed("--without 0 | --without cat -t 2 | --score cosine | --mask causal"):
        found = record("the cat cat", "-m", folder, *options)
        every = weights_of("the cat cat", "-m", folder, *options)
        assert ("model itself is not computed anew" in " ".join(found["notes"])) == ("--without" in options)
        for layer in found["layers"]:
            for head in layer["heads"]:
                W = every[layer["layer"], int(head["head"])]
                bits = [-sum(w * np.log2(w) for w in row if w > 0) for row in W]
                assert head["entropy"] == pytest.approx(np.mean(bits), abs=1e-6)
