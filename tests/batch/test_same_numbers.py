"""Lines computed together: each field is, to the last bit, that of the line by itself."""

import gc
import json
from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.batch import Chunk, Job, compute, records as made_together
from attn_cli.batch.compute import Computer
from attn_cli.batch.forms import write_chunk
from attn_cli.trace import KEYS, OF_STEPS
from tests.alike import FLOAT32, assert_alike
from tests.cli.tables import apart
from tests.models.checkpoints.by_hand import small_gpt2
from tests.shell import attn, here
from tests.thorough import like_cases, often, some

TEXT = "The the quick brown fox fox's jumped over lazy dog Zzxq qqzz 3.14 don't I café 日本 , . ! 😀"
WORDS = TEXT.split()
ALL = tuple(key for key in KEYS if key not in OF_STEPS)
USUAL = ("schema", "kind", "query_tokens", "key_tokens", "weights", "summary")
ODD = [b"zzxq qqzz don't [red] </td> \\input{x}", "wörld 😀 日本語 \u202e evil".encode(), b"x" * 300]


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


FIELDS = ("all", "query_tokens,key_tokens,weights,summary", "head,condensed,links,summary,weights")
# Of each line by itself and among others; of the records' fields each line has its own, in turn.
OPTIONS = apart(
    """
    --head mean | --top 3 | --steps -t 0.5 --score dot
    --dtype float32 | --top 40 --mask causal | --head all --score dot -t 0.3
    -p identity --oov zero --score cosine | --head mean --top 2 | --pad 2 --round 2
    -p identity --heads 4 --head mean --keep-punctuation | -p roles-deep --layer 3 | --oov nearest -q 0
    --head subject --mask window:1:2 --oov random | -p roles-deep --oov zero --mask causal | -e random -p w.json --dim 3
    -e random --dim 6 --heads 2 --head 1 --seed 4 | -e v.txt --oov nearest | --positions sinusoidal
    -e v.txt --keep-punctuation --oov skip | --oov skip | -p roles-deep --layer all
    --oov subword | --tokenizer characters -p identity --mask window:1 | -q the
    --max-text 40 --max-word 12 | -p roles-deep --knock-out 0.1 | --oov error --tokenizer whitespace
    """
)


def same(kind: str, lines: list[bytes], *options: str) -> None:
    """Assert that each line's record, or error, is to the last bit that of the line by itself."""
    Path("lines.txt").write_bytes(b"".join(line + b"\n" for line in lines))
    records = here("batch", "lines.txt", "--kind", kind, "--keep-going", *options).out.splitlines()
    for number, (line, record) in enumerate(zip(lines, records, strict=True), 1):
        alone = here(kind, *line.decode().split("\t"), "-f", "jsonl", *options)
        if alone.code:
            error = json.loads(alone.err)["error"]
            assert json.loads(record)["error"] == error | {"line": number}
        elif "float32" in options:  # its text is the shortest that reads back as the same float32
            assert_alike(json.loads(record), json.loads(alone.out), 2**-24)
        else:
            got, told = (json.loads(text, object_pairs_hook=list) for text in (record, alone.out))
            assert got == told


@pytest.mark.parametrize(("turn", "options"), [*enumerate(["", *OPTIONS])])
def test_a_line_among_others_has_the_numbers_that_it_has_by_itself(turn, options, at):
    draw = np.random.default_rng(1)
    Path("v.txt").write_text("the 1 2 3\nfox 4 5 6\nquick 7 8 9\n")
    W = {name: draw.normal(size=(3, 3)).tolist() for name in ("W_q", "W_k", "W_v", "W_o")}
    Path("w.json").write_text(json.dumps(W))
    count = 4 if "roles-deep" in options else often(24)  # six layers of each line take long
    for fields in some(FIELDS, turn):
        same("self", lines_of(2, count) + ODD[: count // 2], "--fields", fields, *options.split())


@pytest.mark.parametrize("fields", FIELDS[:2])
@pytest.mark.parametrize("kind", ["masked", "cross"])
@pytest.mark.parametrize("options", ["-p roles", "--dtype float32 -e random --head mean"])
def test_so_it_is_in_masked_and_cross(options, kind, fields, at):
    lines = [b"a " + line for line in lines_of(3, 24)]
    if kind == "cross":
        lines = [line + b"\tb " + other for line, other in zip(lines, lines_of(4, 24), strict=True)]
    same(kind, lines, "--fields", fields, *options.split())


def test_so_it_is_with_steps_and_in_groups_of_any_size(at, monkeypatch):
    same("self", lines_of(5, 12), "--fields", "all", "--steps")
    monkeypatch.setattr(compute, "CELLS", 100)
    same("self", lines_of(5, 12), "--fields", "all", "--steps")
    same("self", lines_of(5, 12), "--fields", FIELDS[1])
    monkeypatch.setattr(compute, "MAX_GROUPED_WEIGHTS", 60)
    same("self", lines_of(5, 12), "--fields", FIELDS[1])


def test_a_table_of_words_that_is_full_is_emptied_and_nothing_changes(monkeypatch):
    monkeypatch.setattr(compute, "FIRST_ROWS", 4)
    monkeypatch.setattr(compute, "MOST_BYTES", 800)
    job = Job("self", Settings(), USUAL, False, True, "jsonl")
    lines = lines_of(6, 40, 6)
    with Computer(job) as computer:
        parts = [bytes(write_chunk(computer, Chunk(1 + n, lines[n : n + 4])).data) for n in range(0, 40, 4)]
        assert len(computer.words.places) < 24
    with Computer(job) as computer:
        assert b"".join(parts) == write_chunk(computer, Chunk(1, lines)).data


def letters(n: int) -> list[str]:
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("abcd"), size)) for size in draw.integers(1, 9, n)]


@pytest.fixture
def folder(at, tokenizers):
    Path("lines.txt").write_text("".join(f"{line}\n" for line in letters(40)))
    return small_gpt2(at / "gpt2")


OF_MODEL = """
all | all --layer 0 --head mean | query_tokens,weights,summary -t 0.5 --mask none | weights --head rollout
weights --layer all | all -q a
"""


@pytest.mark.parametrize("fields", apart(OF_MODEL))
@like_cases
def test_a_line_through_a_model_has_the_numbers_that_it_has_by_itself(fields, folder, monkeypatch):
    monkeypatch.setattr(made_together, "MODEL_TOKENS", 6)  # some texts have more
    options = ("-m", folder, "--fields", *fields.split())
    found = here("batch", "lines.txt", "--keep-going", *options).out.splitlines()
    assert len(found) == 40
    for line, record in zip(letters(40), map(json.loads, found), strict=True):
        by_itself = here("self", line, "-f", "jsonl", *options)
        if by_itself.code:
            assert record["error"]["code"] == by_itself.code
        else:
            assert_alike({**record}, json.loads(by_itself.out), FLOAT32)


def test_lines_through_a_pipe_are_computed_one_by_one(folder):
    """However they arrive, so that their bytes do not depend on it."""
    piped = attn("batch", "-m", folder, input=Path("lines.txt").read_text())
    for line, record in zip(letters(40), piped.out.splitlines(), strict=True):
        options = ("-m", folder, "-f", "jsonl", "--fields", FIELDS[1])
        assert json.loads(record) == json.loads(here("self", line, *options).out)
