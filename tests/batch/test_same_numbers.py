"""Lines computed together: each field is, to the last bit, that of the line by itself."""

import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.batch import compute
from attn_cli.batch.compute import Computer, Row
from attn_cli.batch.forms import write_chunk
from attn_cli.batch.lines import Chunk, Job
from attn_cli.errors import AttnError
from attn_cli.io.json_text import json_line
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings import settings_for_masked
from attn_cli.trace import KEYS, OF_STEPS
from tests.alike import FLOAT32, assert_alike
from tests.models.checkpoints.by_hand import small_gpt2
from tests.shell import attn, here
from tests.thorough import like_cases, often

TEXT = "The the quick brown fox fox's jumped over lazy dog Zzxq qqzz 3.14 don't I café 日本 , . ! 😀"
WORDS = TEXT.split()
ALL = tuple(key for key in KEYS if key not in OF_STEPS)
USUAL = ("schema", "kind", "query_tokens", "key_tokens", "weights", "summary")
LINKS = ("schema", "kind", "head", "condensed", "links", "summary", "weights")


def lines_of(seed: int, n: int, longest: int = 30) -> list[bytes]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, size)).encode() for size in draw.integers(0, longest, n)]


@pytest.mark.parametrize("kind", ["self", "masked"])
def test_what_a_chunk_was_made_of_is_freed_without_the_garbage_collector(kind):
    job = Job(kind, Settings(), ALL, False, True, "jsonl")
    chunk = Chunk(1, [*lines_of(3, 40), b"..."])
    with Computer(job) as computer:
        write_chunk(computer, chunk)  # what is made once, too
        gc.collect()
        gc.disable()
        try:
            assert write_chunk(computer, chunk).refused
            assert gc.collect() == 0
        finally:
            gc.enable()


def same(job: Job, lines: list[bytes]) -> None:
    """Assert that each line's record, or error, is that of the line by itself."""
    own = settings_for_masked(job.settings) if job.kind == "masked" else job.settings
    with Computer(job) as computer:
        rows = list(computer.rows(lines))
    assert len(rows) == len(lines)
    for line, row in zip(lines, rows, strict=True):
        text, _, context = line.decode().partition("\t")
        try:
            trace = trace_text(job.kind, text, context or None, own, keep_weights=job.steps)
        except AttnError as error:
            assert isinstance(row, AttnError) and row.as_record() == error.as_record()
            continue
        assert not isinstance(row, AttnError), row
        wanted = trace.to_dict(job.steps, False, job.keys)
        got = json.loads(json_line(row))
        assert list(got) == list(wanted)
        if own.dtype == "float32":  # its text is the shortest that reads back as the same float32
            assert_alike(got, json.loads(json.dumps(wanted)), 2**-24)
        else:
            assert got == json.loads(json.dumps(wanted))


@pytest.mark.parametrize("keys", [ALL, USUAL, LINKS], ids=["all", "usual", "links"])
@pytest.mark.parametrize(
    "settings",
    [
        *(Settings(), Settings(top=3), Settings(top=40, mask="causal"), Settings(head="mean")),
        Settings(head="all", score="dot", temperature=0.3),
        *(Settings(head="subject", mask="window:1:2", oov="random"), Settings(dtype="float32")),
        Settings(projection="identity", oov="zero", score="cosine"),
        Settings(projection="identity", heads=4, head="mean", keep_punctuation=True),
        Settings(projection="roles-deep", layer=3),
        Settings(projection="roles-deep", oov="zero", mask="causal"),
        Settings(embedding="random", dim=6, heads=2, head="1", seed=4),
        Settings(embedding="random", projection="w.json", dim=3),
        *(Settings(embedding="v.txt", oov="nearest"), Settings(oov="skip"), Settings(oov="subword")),
        Settings(tokenizer="characters", projection="identity"),
        Settings(oov="error", tokenizer="whitespace"),
        *(Settings(pad=2, round=2), Settings(positions="sinusoidal")),
        *(Settings(layer="all", projection="roles-deep"), Settings(max_text="40", max_word="12")),
        Settings(query="the"),
    ],
    ids=lambda one: " ".join(f"{k}={v}" for k, v in vars(one).items() if v != vars(Settings())[k]) or "usual",
)
@like_cases
def test_a_line_among_others_has_the_numbers_that_it_has_by_itself(settings, keys, at):
    draw = np.random.default_rng(1)
    Path("v.txt").write_text("the 1 2 3\nfox 4 5 6\nquick 7 8 9\n")
    W = {name: draw.normal(size=(3, 3)).tolist() for name in ("W_q", "W_k", "W_v", "W_o")}
    Path("w.json").write_text(json.dumps(W))
    count = 4 if settings.projection == "roles-deep" else often(24)  # six layers of each line take long
    same(Job("self", settings, keys, False, True, "jsonl"), lines_of(2, count))


@pytest.mark.parametrize("keys", [ALL, USUAL], ids=["all", "usual"])
@pytest.mark.parametrize("kind", ["masked", "cross"])
@pytest.mark.parametrize("settings", [Settings(), Settings(dtype="float32", embedding="random", head="mean")])
def test_so_it_is_in_masked_and_cross(settings, kind, keys):
    lines = [b"a " + line for line in lines_of(3, 24)]
    if kind == "cross":
        lines = [line + b"\tb " + other for line, other in zip(lines, lines_of(4, 24), strict=True)]
    same(Job(kind, settings, keys, False, True, "jsonl"), lines)


def test_so_it_is_with_steps_and_in_groups_of_any_size(monkeypatch):
    job = Job("self", Settings(), tuple(KEYS), True, True, "jsonl")
    same(job, lines_of(5, 12))
    monkeypatch.setattr(compute, "CELLS", 100)
    same(job, lines_of(5, 12))
    same(replace(job, keys=USUAL, steps=False), lines_of(5, 12))
    monkeypatch.setattr(compute, "MAX_GROUPED_WEIGHTS", 60)
    same(replace(job, keys=USUAL, steps=False), lines_of(5, 12))


def test_a_table_of_words_that_is_full_is_emptied_and_nothing_changes(monkeypatch):
    monkeypatch.setattr(compute, "FIRST_ROWS", 4)
    monkeypatch.setattr(compute, "MOST_BYTES", 800)
    job = Job("self", Settings(), USUAL, False, True, "jsonl")
    lines = lines_of(6, 40, 6)
    with Computer(job) as computer:
        parts = [list(computer.rows(lines[start : start + 4])) for start in range(0, 40, 4)]
        assert len(computer.words.places) < 24
    with Computer(job) as computer:
        whole = list(computer.rows(lines))
    assert [told(row) for rows in parts for row in rows] == list(map(told, whole))


def told(row: Row) -> bytes:
    return json_line(row.as_record() if isinstance(row, AttnError) else row)


# Through a pretrained model, but for the last bits of float32


def letters(n: int) -> list[str]:
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("abcd"), size)) for size in draw.integers(1, 9, n)]


@pytest.fixture
def folder(at, tokenizers):
    Path("lines.txt").write_text("".join(f"{line}\n" for line in letters(40)))
    return small_gpt2(at / "gpt2")


@pytest.mark.parametrize(
    "options",
    [
        *(("--fields", "all"), ("--fields", "all", "--layer", "0", "--head", "mean")),
        ("--fields", "query_tokens,weights,summary", "-t", "0.5", "--mask", "none"),
        *(("--fields", "weights", "--head", "rollout"), ("--fields", "weights", "--layer", "all")),
        ("--fields", "all", "-q", "a", "--keep-going"),
    ],
    ids=" ".join,
)
@like_cases
def test_a_line_through_a_model_has_the_numbers_that_it_has_by_itself(options, folder):
    got = here("batch", "lines.txt", "-m", folder, *options)
    found = [json.loads(line) for line in got.out.splitlines()]
    assert len(found) == 40
    alone = [option for option in options if option != "--keep-going"]
    for line, record in zip(letters(40), found, strict=True):
        by_itself = here("self", line, "-m", folder, "-f", "jsonl", *alone)
        if by_itself.code:
            assert record["error"]["code"] == by_itself.code
        else:
            assert_alike({**record}, json.loads(by_itself.out), FLOAT32)


def test_lines_through_a_pipe_are_computed_one_by_one(folder):
    """However they arrive, so that their bytes do not depend on it."""
    text = Path("lines.txt").read_text()
    piped = attn("batch", "-m", folder, input=text)
    for line, record in zip(letters(40), piped.out.splitlines(), strict=True):
        fields = ("--fields", "query_tokens,key_tokens,weights,summary")
        assert json.loads(record) == json.loads(here("self", line, "-m", folder, "-f", "jsonl", *fields).out)
