"""attn batch: lines in, JSON Lines out, in order and in constant memory."""

import gzip
import json
import lzma
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attn_cli import Settings, vectors as remembered
from attn_cli.batch import LONGEST_LINE, Feed, Job, chunks_of
from attn_cli.batch.storage import inputs_of
from attn_cli.batch.workers import outputs
from attn_cli.vectors import bundled
from tests.cli.tables import told as cases
from tests.memory import peak
from tests.schema import complaints
from tests.shell import (
    COMMAND,
    attn,
    here,
    python,
    shell,
    started,
    surroundings,
    terminal,
    told,
    until_closed,
)
from tests.thorough import takes_long

LINES = ["The quick brown fox jumped over the lazy dog.", "she likes coffee"]
LINES += ["zzxq qqzz don't [red] </td> \\input{x}", "wörld 😀 日本語 \u202e evil", "x" * 5000, "one"]
RANDOM = ("-e", "random")
ALL = ("--fields", "all")


def write(lines: list[str] | bytes, name: str = "lines.txt") -> str:
    data = lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
    Path(name).write_bytes(data)
    return name


def records(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def error_of(text: str) -> dict[str, object]:
    assert text.count("\n") == 1, text
    record = json.loads(text)
    assert complaints(record) == []
    return record["error"]


def test_records_are_inert_the_same_in_ascii_and_bytes_that_are_no_utf8_are_noted_in_theirs_alone(at):
    got = here("batch", write(LINES), *ALL)
    assert (got.code, got.err) == (0, "") and "\x1b" not in got.out and "\u202e" not in got.out
    ascii = attn("batch", "lines.txt", *ALL, env={"PYTHONIOENCODING": "ascii"}).out
    assert ascii.isascii() and records(ascii) == records(got.out)
    got = here("batch", "lines.txt", "--kind", "masked", "--fields", "projection")
    assert records(got.out)[0]["projection"]["name"] == "roles"  # which takes less time than language
    got = here("batch", write(b"a \xff b\na \x00 b\na b\n"), *RANDOM, "--tokenizer", "whitespace", *ALL)
    notes = ["Bytes that are not UTF-8 were read as U+FFFD."]
    assert [record["notes"] for record in records(got.out)] == [notes, [], []]
    tokens = [" ".join(record["query_tokens"]) for record in records(got.out)]
    assert tokens == ["a \ufffd b", "a \0 b", "a b"]


KEYS = """
=> query_tokens key_tokens weights summary | --top 2 => query_tokens key_tokens summary links
--fields unknown,summary => unknown summary | --steps => | --fields notes,summary.key -q 1 => summary notes
"""


@pytest.mark.parametrize(("options", "keys"), cases(KEYS))
def test_a_record_has_the_fields_that_are_asked_for_or_the_usual_ones(options, keys, at):
    record = json.loads(here("batch", write(["she likes coffee"]), *options).out)
    whole = json.loads(here("self", "she likes coffee", "-f", "jsonl", *options).out)
    assert list(record) == (["schema", "kind", *keys.split()] if keys else list(whole))
    assert record == {key: whole[key] for key in record}


TWO = b"she likes\nthe cat\n"
WRITTEN = {"plain": TWO, "no last newline": TWO[:-1], "CRLF": TWO.replace(b"\n", b"\r\n")}
WRITTEN |= {"BOM": b"\xef\xbb\xbf" + TWO, "xz": lzma.compress(TWO)}
WRITTEN |= {"two gzip members": gzip.compress(TWO[:10]) + gzip.compress(TWO[10:])}


@pytest.mark.parametrize("data", WRITTEN.values(), ids=WRITTEN)
def test_however_a_file_is_written_its_lines_are_the_same(data, at):
    found = records(told("batch", write(data), *RANDOM))
    assert [record["query_tokens"] for record in found] == [["she", "likes"], ["the", "cat"]]


def test_lines_come_from_a_pipe_and_a_reader_that_leaves_is_no_error_but_a_full_disk_is(at):
    assert here("batch", write(b"")) == here("batch") == (0, "", "")
    piped = attn("batch", *RANDOM, input="a b\nc\n")
    assert piped.code == 0 and piped.out.count("\n") == 2
    assert attn("batch", "-", *RANDOM, input="a b\nc\n") == piped
    ran = terminal("batch", write(b"a b\n"), "-f", "parquet")
    assert ran.code == 2 and "-f parquet is not text." in ran.out
    got = attn("batch", input=gzip.compress(b"a b\n"))
    assert got.code == 65 and "gzip -dc" in str(error_of(got.err)["hint"])
    assert here("batch", "/").code == here("batch", "missing.txt").code == 66
    write(["a b c d e f"] * 300)
    assert shell("attn batch lines.txt -e random | head -1 | wc -l", cwd=at) == (0, "1\n", "")
    if Path("/dev/full").exists():
        got = shell("attn batch lines.txt -e random > /dev/full", cwd=at)
        assert got.code == error_of(got.err)["code"] == 74


def test_a_record_is_there_before_the_next_line_is_and_an_interrupt_leaves_whole_lines():
    with started("batch", *RANDOM, stdin=-1, stdout=-1, stderr=-1) as process:
        for text in ("she likes", "the cat"):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["query_tokens"] == text.split()
        process.stdin.write(b"she likes coffee\n" * 50)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, said = process.stdout.read(), process.stderr.read()
        process.stdin.close()
        assert (process.wait(timeout=60), said) == (130, b"")
    assert rest == b"" or rest.endswith(b"\n")


def test_with_keep_going_line_k_of_the_output_is_line_k_of_the_input(at):
    long, longest, most = "a " * LONGEST_LINE, "a" * LONGEST_LINE + "a", "a . " * 5000
    # The third has no a in it.
    lines = ["a b", "", "c d", "...", "a" + " " * 6000, long, "c a", most, longest]
    got = here("batch", write(lines), *RANDOM, "-q", "a", "--keep-going", "--fields", "key_tokens")
    found = records(got.out)
    assert not any(map(complaints, found))
    errors = [record.get("error") for record in found]
    wanted = [None, (2, 65), (3, 2), (4, 65), None, (6, 65), None, (8, 65), (9, 65)]
    assert [error and (error["line"], error["code"]) for error in errors] == wanted
    assert list(found[0]) == ["schema", "kind", "key_tokens"]
    assert found[6]["key_tokens"] == ["c", "a"] and "5,000 tokens" in errors[7]["message"]
    assert got.code == 65
    assert error_of(got.err)["message"] == "6 of 9 lines were refused."
    line = ("--kind", "masked", "--without", "a", "--keep-going", "--fields", "key_tokens")
    got = here("batch", write(["b a c", "b c", "a b c"]), *RANDOM, *line)
    assert ["error" in one for one in records(got.out)] == [False, True, False] and got.code == 65


BAD_LINES = [("--oov error", 65, "zzxq"), ("--oov skip", 65, "zzxq"), ("-q dog", 2, "cat")]
BAD_LINES += [("--kind cross", 65, line) for line in ("no tab", "a\tb\tc", "a\t")]
BAD_LINES += [("--mask m.txt --mask-true allowed", 65, "two words"), ("", 65, "a" * (LONGEST_LINE + 1))]


@pytest.mark.parametrize(("options", "code", "line"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_what_is_wrong_with_one_line_is_told_with_its_number(options, code, line, at):
    options = options.split()
    Path("m.txt").write_text("1\n")
    good = "dog\tdog" if "cross" in options else "dog"
    write([good, line, good])
    got = here("batch", "lines.txt", *options)
    assert got.code == code and got.out.count("\n") == 1
    assert error_of(got.err)["line"] == 2
    got = here("batch", "lines.txt", "--keep-going", *options)
    first, second, third = records(got.out)
    assert first == third and second["error"] == {**second["error"], "line": 2, "code": code}
    assert got.code == 65 and error_of(got.err)["message"] == "1 of 3 lines was refused."


# Options and the exit code that they lead to, whatever the lines are.
WRONG = """
--score best => 2 | --temperature 0 => 2 | --head bogus => 2 | --layer 7 => 2 | -p identity --heads 7 => 2
-p identity --oov model => 2 | -e bogus => 2 | --mask diagonal => 2 | --kind bogus => 2 | -f json => 2 | -f pdf => 2
-o x.json => 2 | -o x.txt => 2 | --bogus => 2 | -e random -p roles => 65 | -p w.json => 65 | another.txt => 66
-e ./none.txt => 66 | -p ./none.json => 66 | --mask ./none.txt => 66 | -o none/x.jsonl => 73
-o s3://bucket/x.jsonl => 2 is one file. | - => 2 Standard input (-) cannot be read beside files. | --fields wights => 2
--tidy => 2 --tidy requires a table. | -f tsv --fields weights => 2 --fields does not apply to rows of links.
--tidy -f csv --steps => 2 --steps does not apply to rows of links. | --force => 2 --force requires -o DIR/
--engine dask => 2 --engine dask writes a folder of parts. | -o x.jsonl -f csv => 2 x.jsonl cannot hold csv.
-o d/ --engine dask --scheduler tcp://x:1 -p w.json => 2 w.json is not the same there.
-o d/ --engine dask --scheduler tcp://x:1 -e w.json => 2 w.json is not the same there.
-o d/ --engine dask --scheduler tcp://x:1 -m w.json => 2 w.json is not the same there.
-o d/ --engine dask --scheduler tcp://x:1 --mask w.json => 2 w.json is not the same there.
"""


@pytest.mark.parametrize(("options", "end"), cases(WRONG))
def test_what_is_wrong_with_every_line_ends_the_run_at_once(options, end, at):
    code, said = int(end[:2]), end[3:]
    Path("w.json").write_text(json.dumps({name: [[1, 2]] for name in ("W_q", "W_k", "W_v")}))
    write(["a b", "c d"])
    got = here("batch", "lines.txt", "--keep-going", *options)
    assert (got.code, got.out) == (code, "")
    assert (error_of(got.err)["code"], error_of(got.err)["line"]) == (code, None)
    assert said in str(error_of(got.err)["message"])
    assert {path.name for path in at.iterdir()} == {"w.json", "lines.txt"}


def test_a_file_holds_all_records_or_is_not_made_and_one_without_lines_is_refused_as_a_whole(at):
    good, bad = write(["a b", "c"], "good.txt"), write(["a b", "..."], "bad.txt")
    assert here("batch", good, *RANDOM, "-o", "x.jsonl") == (0, "", "")
    before = Path("x.jsonl").read_text()
    assert before == here("batch", good, *RANDOM).out
    assert here("batch", "x.jsonl", "-o", "./x.jsonl").code == 2  # it would replace what it reads
    for name in ("x.jsonl", "y.jsonl"):
        assert here("batch", bad, *RANDOM, "-o", name).code == 65
    assert Path("x.jsonl").read_text() == before
    assert {path.name for path in at.iterdir()} == {"good.txt", "bad.txt", "x.jsonl"}
    assert here("batch", bad, *RANDOM, "-o", "x.jsonl", "--keep-going").code == 65
    assert Path("x.jsonl").read_text() == here("batch", bad, *RANDOM, "--keep-going").out
    packed = gzip.compress(b"a b\n")[:-6]
    files = {"UTF-16": "a b\n".encode("utf-16"), "cut off": packed, "cannot be unpacked": b"\x1f\x8bnonsense"}
    for said, data in files.items():
        got = here("batch", write(data), "--keep-going", *RANDOM)
        assert got.code == 65 and said in str(error_of(got.err)["message"])
        assert error_of(got.err)["line"] is None


def test_a_standing_wish_for_another_format_is_none_for_a_batch_and_a_variable_is_blamed_with_the_line(at):
    Path("attn.toml").write_text('format = "table"\ncolor = "always"\nembedding = "random"\n[batch]\ndim = 3')
    got = here("batch", write(["a b"]), *ALL, env={"ATTN_FORMAT": "csv"})
    assert json.loads(got.out)["embedding"]["dim"] == 3
    assert got.err == "attn: settings from attn.toml: embedding, dim.\n"
    got = here("batch", write(["dog", "cat"]), *RANDOM, env={"ATTN_QUERY": "dog"})
    error = error_of(got.err.splitlines(keepends=True)[-1])
    assert (got.code, error["line"]) == (78, 2) and str(error["message"]).startswith("ATTN_QUERY")


def test_progress_is_shown_to_who_watches_and_taken_away(at):
    write(["she likes coffee"] * 60)
    for line, wanted in (("lines.txt", "%"), ("- < lines.txt", " lines, ")):
        ours, its = pty.openpty()
        script = f"{sys.executable} -m attn_cli batch -e random {line} > out.jsonl"
        done = subprocess.run(["sh", "-c", script], stderr=its, env=surroundings())
        os.close(its)
        said = until_closed(ours)
        assert done.returncode == 0 and wanted.encode() in said and said.endswith(b"\r")
        assert said.rstrip(b"\r").rpartition(b"\r")[2].strip() == b""
        assert Path("out.jsonl").read_text().count("\n") == 60
    ours, its = pty.openpty()
    done = subprocess.run([*COMMAND, "batch"], stdin=its, capture_output=True, env=surroundings(), timeout=60)
    error = error_of(done.stderr.decode())
    assert (done.returncode, error["hint"]) == (2, "Try: attn batch sentences.txt")


@takes_long
def test_memory_does_not_grow_with_the_lines(at):
    """The highest use over 2,000 and over 8,000 lines, after a run that fills what is kept."""
    keys = ("schema", "kind", "query_tokens", "key_tokens", "weights", "summary")
    job = Job("self", Settings(embedding="random"), keys, False, False, "jsonl")

    def run() -> None:
        chunks = chunks_of(Feed(inputs_of(["lines.txt"])).groups())
        assert min(len(chunk.data) / chunk.lines for chunk in outputs(job, chunks)) > 1000

    write(["she likes coffee and the quick brown fox"] * 2000)
    run()
    few = peak(run)
    write(["she likes coffee and the quick brown fox"] * 8000)
    assert peak(run) < few * 1.05 + 100_000


def test_the_model_and_the_vectors_are_opened_once(at):
    write(["she likes coffee"] * 20)
    count = """
from attn_cli.cli.app import main
seen = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]).endswith(".safetensors") and seen.append(args))
print(main(["batch", "lines.txt", "-o", "x.jsonl"]), len(seen))
"""
    assert python(count) == (0, "0 2\n", "")


def test_what_is_remembered_is_what_the_table_says(monkeypatch):
    monkeypatch.setattr(remembered, "MOST_BYTES", 8 * bundled().dim * 3)
    kept = bundled()
    for words in (["cat", "zzxq", "cat"], ["dog", "cat"], ["a", "b", "c", "d", "e"], [], ["zzxq", "x" * 99]):
        found, wanted = kept.find(words), bundled().find(words)
        assert set(found) == set(wanted)
        assert all(np.array_equal(found[word], wanted[word]) for word in wanted)
        assert len(kept.known) <= 3
