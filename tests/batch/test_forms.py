"""The forms of records: read back by other programs, they say what JSON Lines say."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.shell import attn, here

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402  # after the library is known to be there

LINES = ["She likes coffee", "The cat sat on the mat", "dog", "wörld 😀 [red] zzxq"]
COLUMNS = (
    *("query_tokens", "key_tokens", "query_ids", "key_ids", "unknown", "dropped"),
    *("mask_name", "head", "weights", "output", "summary", "diagnostics", "links", "heads", "notes"),
)


def write(lines: list[str]) -> None:
    Path("lines.txt").write_text("".join(f"{line}\n" for line in lines))


def json_lines(*options: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in here("batch", "lines.txt", *options).out.splitlines()]


@pytest.mark.parametrize(("suffix", "unpack"), [("gz", gzip.decompress), ("zst", None)])
def test_compressed_lines_are_the_lines(suffix, unpack, at):
    write(LINES * 150)
    usual = ("batch", "lines.txt", "-e", "random", "--dim", "2")
    plain, found = here(*usual).out.encode(), set()
    for workers in ("1", "2"):
        assert here(*usual, "-o", f"x.jsonl.{suffix}", "--workers", workers) == (0, "", "")
        packed = Path(f"x.jsonl.{suffix}").read_bytes()
        data = unpack(packed) if unpack else pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read()
        assert data == plain
        found.add(packed)
    assert len(found) == 1
    assert attn(*usual, "-f", f"jsonl.{suffix}", "-o", "/dev/stdout").code == 0


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "options", [(), ("--top", "2"), ("--fields", "all"), ("--dtype", "float32")], ids=str
)
def test_a_table_says_what_the_records_say(form, options, at):
    write(LINES)
    assert here("batch", "lines.txt", "-o", f"x.{form}", *options) == (0, "", "")
    table = parquet.read_table("x.parquet") if form == "parquet" else pa.ipc.open_file("x.arrow").read_all()
    assert table.schema.metadata[b"attn.schema"] == b"attn-table/1"
    wanted = json_lines(*options)
    assert table["line"].to_pylist() == [1, 2, 3, 4]
    names = [name for name in table.column_names if name != "line"]
    assert names == [key for key in wanted[0] if key in COLUMNS]
    for row, record in zip(table.to_pylist(), wanted, strict=True):
        if record.get("links") is not None:
            record["links"] = [
                dict(zip(("query", "key", "weight"), link, strict=True)) for link in record["links"]
            ]
        for name in names:
            if options == ("--dtype", "float32") and name in ("weights", "summary"):
                continue
            assert row[name] == record[name]
        if options == ("--dtype", "float32"):
            assert table.schema.field("weights").type == pa.list_(pa.list_(pa.float32()))
            got = [np.array(row["weights"], np.float32), np.array(record["weights"], np.float32)]
            assert np.array_equal(*got)


def test_a_refused_line_is_a_row_of_its_error(at):
    write(["a b", "...", "dog"])
    got = here("batch", "lines.txt", "-o", "x.parquet", "--keep-going")
    assert got.code == 65 and "1 of 3 lines was refused" in got.err
    rows = parquet.read_table("x.parquet").to_pylist()
    assert [row["error"] and row["error"]["code"] for row in rows] == [None, 65, None]
    assert rows[1] == {**dict.fromkeys(rows[1]), "line": 2, "error": rows[1]["error"]}
    got = here("batch", "lines.txt", "-o", "y.parquet")
    assert got.code == 65 and '"line": 2' in got.err and not Path("y.parquet").exists()


def test_any_number_of_processes_writes_the_same_table(at):
    write(LINES * 300)
    for form in ("parquet", "arrow"):
        for workers in ("1", "3"):
            assert here("batch", "lines.txt", "-o", f"{workers}.{form}", "--workers", workers).code == 0
        assert Path(f"1.{form}").read_bytes() == Path(f"3.{form}").read_bytes()


def test_parts_of_numpy_arrays_hold_values_and_lengths(at):
    write(LINES)
    assert here("batch", "lines.txt", "-f", "npz", "-o", "out/").code == 0
    arrays = np.load("out/part-00000.npz")
    wanted = json_lines()
    rows, widths = iter(arrays["weights_rows"]), iter(arrays["weights_lengths"])
    at_ = 0
    for record in wanted:
        for row, _ in zip(record["weights"], range(next(rows)), strict=True):
            width = next(widths)
            assert arrays["weights"][at_ : at_ + width].tolist() == row
            at_ += width
    assert at_ == len(arrays["weights"])
    assert arrays["query_tokens"].tolist() == [token for record in wanted for token in record["query_tokens"]]
    assert arrays["query_tokens_lengths"].tolist() == [len(record["query_tokens"]) for record in wanted]


def test_no_lines_are_a_table_of_no_rows(at):
    write([])
    for form in ("parquet", "arrow"):
        assert here("batch", "lines.txt", "-o", f"x.{form}") == (0, "", "")
    assert parquet.read_table("x.parquet").num_rows == pa.ipc.open_file("x.arrow").read_all().num_rows == 0


def test_what_is_no_column_is_told(at):
    write(LINES)
    got = here("batch", "lines.txt", "-o", "x.parquet", "--fields", "weights,embedding")
    assert got.code == 2 and "embedding" in got.err and "query_tokens" in got.err
    assert here("batch", "lines.txt", "-o", "x.parquet", "-f", "arrow").code == 2
    got = here("batch", "lines.txt", "-o", "x.parqet")
    assert got.code == 2


@pytest.mark.parametrize(
    "command", ["self cat -o x.parquet", "batch lines.txt -o x.parquet", "batch lines.txt -o x.jsonl.zst"]
)
def test_without_pyarrow_the_line_that_installs_it_is_told(command, at, without):
    write(LINES)
    without("pyarrow")
    ran = here(*command.split())
    assert ran.code == 69 and "pip install 'attn-cli[batch]'" in ran.err
    assert os.listdir() == ["lines.txt"]
