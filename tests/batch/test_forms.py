"""The forms of records: read back by other programs, they say what JSON Lines say."""

import csv
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.alike import assert_alike
from tests.cli.tables import told as cases
from tests.docs import ROOT
from tests.shell import attn, here, record as printed, refused

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


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed_lines_are_the_lines(suffix, at):
    write(LINES * 150)
    usual = ("batch", "lines.txt", "-e", "random", "--dim", "2")
    found = set()
    for workers in ("1", "2"):
        assert here(*usual, "-o", f"x.jsonl.{suffix}", "--workers", workers) == (0, "", "")
        found.add(Path(f"x.jsonl.{suffix}").read_bytes())
    (packed,) = found
    with pa.CompressedInputStream(pa.BufferReader(packed), {"gz": "gzip", "zst": "zstd"}[suffix]) as stream:
        assert stream.read() == here(*usual).out.encode()
    assert attn(*usual, "-f", f"jsonl.{suffix}", "-o", "/dev/stdout").code == 0


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "options", ["", "--head all", "--top 2", "--fields all", "--fields all --dtype float32"]
)
def test_a_table_says_what_the_records_say(form, options, at):
    options = tuple(options.split())
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
            keys = ("query", "key", "weight")
            record["links"] = [dict(zip(keys, link, strict=True)) for link in record["links"]]
        if options == ("--head", "all"):
            assert {(*head,) for head in record["heads"]} == {("name", "layer", "weights")}
        if "float32" in options:  # the weights, and what is made of them; not what is said of a row
            wide = re.findall(r"(\w+): double", " ".join(map(str, table.schema.types)))
            assert wide == ["entropy", "most", "temperature_95"]
            got, told = (np.array(one["weights"], np.float32) for one in (row, record))
            assert np.array_equal(got, told)
            names = [name for name in names if name not in ("weights", "summary", "output")]
        for name in names:
            assert row[name] == record[name]


def test_a_refused_line_is_a_row_of_its_error_without_links_and_no_lines_are_no_rows(at):
    write(["a b", "...", "dog"])
    assert here("batch", "lines.txt", "-o", "x.parquet", "--keep-going").code == 65
    rows = parquet.read_table("x.parquet").to_pylist()
    assert [row["error"] and row["error"]["code"] for row in rows] == [None, 65, None]
    assert rows[1] == {**dict.fromkeys(rows[1]), "line": 2, "error": rows[1]["error"]}
    said = refused("batch", "lines.txt", "-o", "y.parquet", code=65)
    assert '"line": 2' in said and not Path("y.parquet").exists()
    got = here("batch", "lines.txt", "-f", "csv", "--keep-going")
    assert got.code == 65 and "1 of 3 lines was refused" in got.err
    assert [line[0] for line in got.out.splitlines()[1:]] == ["1"] * 4 + ["3"]
    write(["dog"] * 513)  # one more than are computed together
    for name, *more in (("x.parquet",), ("y.parquet", "--tidy")):
        assert here("batch", "lines.txt", "-e", "random", "-o", name, *more) == (0, "", "")
        assert parquet.read_table(name).column(0).to_pylist() == [*range(1, 514)]
    assert here("batch", "lines.txt", "-e", "random", "-f", "csv").out.splitlines()[-1].startswith("513,")
    write([])
    for form in ("parquet", "arrow"):
        assert here("batch", "lines.txt", "-o", f"x.{form}") == (0, "", "")
    assert parquet.read_table("x.parquet").num_rows == pa.ipc.open_file("x.arrow").read_all().num_rows == 0


def test_parts_of_numpy_arrays_hold_values_and_lengths(at):
    write(LINES)
    assert here("batch", "lines.txt", "-f", "npz", "-o", "out/").code == 0
    arrays = np.load("out/part-00000.npz")
    wanted = json_lines()
    assert arrays["weights_rows"].tolist() == [len(record["weights"]) for record in wanted]
    rows = np.split(arrays["weights"], np.cumsum(arrays["weights_lengths"]))
    assert [row.tolist() for row in rows] == [*(row for record in wanted for row in record["weights"]), []]
    assert arrays["query_tokens"].tolist() == [token for record in wanted for token in record["query_tokens"]]
    assert arrays["query_tokens_lengths"].tolist() == [len(record["query_tokens"]) for record in wanted]
    write(["She likes coffee", "dog", "cat"])  # the first word has no key, and the others no such token
    options = ("--kind", "masked", "--without", "She", "--keep-going", "--fields", "head,summary")
    assert here("batch", "lines.txt", "-f", "npz", "-o", "none/", *options).code == 65
    arrays = {name: array.tolist() for name, array in np.load("none/part-00000.npz").items()}
    assert (arrays["line"], arrays["head"]) == ([1, 2, 3], ["relations", "", ""])
    assert (arrays["summary_lengths"], arrays["error_code"]) == ([3, 0, 0], [-1, 2, 2])
    assert (arrays["summary_key"][0], arrays["summary_key_index"][0]) == ("", -1)
    assert np.isnan(arrays["summary_weight"]).tolist() == [True, False, False]


@pytest.mark.parametrize("command", ["self cat", "batch lines.txt", "batch lines.txt -f jsonl.zst"])
def test_without_pyarrow_the_line_that_installs_it_is_told(command, at, without):
    write(LINES)
    without("pyarrow")
    name = "x.jsonl.zst" if "zst" in command else "x.parquet"
    assert "pip install 'attn-cli[batch]'" in refused(*command.split(), "-o", name, code=69)
    assert os.listdir() == ["lines.txt"]


TEXTS = [*LINES[:1], "the cat sat on the mat", "dog"]
OF_LINKS = ["text", "layer", "head", "query", "key", "weight", "query_index", "key_index"]
RANDOM = ("-e", "random", "--heads", "2")


@pytest.fixture
def lines(at):
    write(TEXTS)


def links_of(number, record):
    """The links of a record, worked out from its weights and its mask, or from its links."""
    shown = {"name": record["head"], "layer": record["projection"]["layer"], "weights": record["weights"]}
    for head in record["heads"] or [{**shown, "mask": None}]:
        places = record["query_rows"] or range(len(record["query_tokens"]))
        mask = head["mask"] or record["mask"]
        for i, query in enumerate(record["query_tokens"]):
            for j, key in enumerate(record["key_tokens"]):
                if mask is None or mask[i][j]:
                    same = number, head["layer"], head["name"], query, key
                    yield dict(zip(OF_LINKS, (*same, head["weights"][i][j], places[i], j), strict=True))


CASES = [
    *(("self",), ("self", "--head", "all"), ("masked", "-p", "roles", "--head", "all")),
    ("self", *RANDOM, "--head", "all", "--mask", "window:1"),
    *(("self", "-p", "roles-deep", "--layer", "all"), ("self", *RANDOM, "--head", "mean")),
    ("self", "--dtype", "float32"),
]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_each_link_that_is_not_masked_is_a_row(case, lines):
    kind, *options = case
    shown = {"heads": []} if "mean" in case else {}
    records = (printed(kind, text, *options) | shown for text in TEXTS)
    wanted = [link for number, record in enumerate(records, 1) for link in links_of(number, record)]
    assert here("batch", "lines.txt", "--kind", kind, "--tidy", "-o", "x.parquet", *options) == (0, "", "")
    table = parquet.read_table("x.parquet")
    assert table.schema.metadata[b"attn.schema"] == b"attn-links/1"
    assert_alike(table.to_pylist(), wanted)
    rows = csv.DictReader(here("batch", "lines.txt", "--kind", kind, "-f", "csv", *options).out.splitlines())
    for row, told in zip(rows, table.to_pylist(), strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in told.items()}
    assert here(kind, TEXTS[1], "-o", "y.parquet", *options).code == 0
    assert parquet.read_schema("y.parquet") == table.schema
    of_text = [{**row, "text": 1} for row in table.to_pylist() if row["text"] == 2]
    assert_alike(parquet.read_table("y.parquet").to_pylist(), of_text)


def test_the_strongest_links_and_the_rows_asked_for_stand_alone(lines):
    options = ("--head", "all", "--top", "2", "-q", "the")
    assert here("self", TEXTS[1], *options, "-o", "x.parquet") == (0, "", "")
    rows = parquet.read_table("x.parquet").to_pylist()
    heads = ((head["name"], head["weights"]) for head in printed("self", TEXTS[1], "--head", "all")["heads"])
    highest = ((name, i, sorted(weights[i], reverse=True)[:2]) for name, weights in heads for i in (0, 4))
    wanted = [(name, i, weight) for name, i, two in highest for weight in two]
    assert_alike([(row["head"], row["query_index"], row["weight"]) for row in rows], wanted)
    assert all(row["key"] == TEXTS[1].split()[row["key_index"]] for row in rows)
    record = json_lines("--head", "all", "--top", "2")[1]
    assert_alike([link[2] for link in record["heads"][0]["links"][:2]], [weight for *_, weight in wanted[:2]])


def test_every_form_has_the_same_rows(lines):
    write(["she likes", "=1+1 [red]"] * 300)
    for to in (("-o", "x.parquet"), ("-o", "x.csv"), ("-o", "x.arrow"), ("-f", "npz", "-o", "out/")):
        assert here("batch", "lines.txt", "--tidy", *to).code == 0
    wanted = parquet.read_table("x.parquet").to_pylist()
    assert pa.ipc.open_file("x.arrow").read_all().to_pylist() == wanted
    assert np.load("out/part-00000.npz")["weight"].tolist() == [row["weight"] for row in wanted]
    head, *rows = csv.reader(Path("x.csv").read_text().splitlines())
    assert (head, len(rows), rows[4][3]) == (OF_LINKS, len(wanted), "'=")
    assert b"\r" not in Path("x.csv").read_bytes()


NO_TABLE = """
batch lines.txt --tidy => parquet, arrow, npz, csv | batch lines.txt -f csv --fields weights => --fields does not apply
batch lines.txt --tidy -o x.parquet --steps => --steps does not apply | self "a cat" --tidy -f json => -f parquet
batch lines.txt --fields heads.q -o x.parquet => Columns are heads.name | heads "a cat" -o x.parquet => parquet
batch lines.txt -o x.parquet --fields weights,embedding => 'embedding' in tables.", "hint": "Columns are query_tokens
batch lines.txt -o x.parquet -f arrow => | batch lines.txt -o x.parqet =>
"""


def test_what_has_no_such_table_says_so(lines):
    for args, said in cases(NO_TABLE):
        assert said in refused(*args) and not Path("x.parquet").exists()


def test_entropy_has_a_number_for_each_row_of_each_head(lines):
    write(["She likes coffee"])
    options = (*RANDOM, "--head", "all", "--kind", "masked", "--without", "She")
    fields = ("--fields", "entropy,heads.weights,diagnostics")
    (record,) = json_lines(*options, *fields)
    bits = lambda row: sum(-w * math.log2(w) for w in row if w) if any(row) else None  # noqa: E731
    wanted = [[*map(bits, head["weights"])] for head in record["heads"]]
    assert len(wanted) == 2 and wanted[0][0] is None
    assert_alike(record["entropy"], wanted)
    assert here("batch", "lines.txt", *options, *fields, "-o", "x.parquet") == (0, "", "")
    row = parquet.read_table("x.parquet").to_pylist()[0]
    for key in ("entropy", "heads", "diagnostics"):
        assert_alike(row[key], record[key])
    alone = printed("self", "the cat sat", "--fields", "entropy,diagnostics")
    assert_alike(alone["entropy"], [[one["entropy"] for one in alone["diagnostics"]]])
    assert "entropy" not in printed("self", "the cat sat")


RECIPES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "batch.md").read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_a_recipe_of_the_page_finds_the_words_that_are_looked_at_most(library, at):
    pytest.importorskip(library)
    write(["She likes coffee", "The cat sat on the mat", "A dog barked"])
    assert here("batch", "lines.txt", "-o", "lines.parquet").code == 0
    assert here("batch", "lines.txt", "--head", "all", "--tidy", "-o", "links.parquet").code == 0
    of_records, of_links = (one for one in RECIPES if f"import {library}\n" in one)
    for recipe, words in ((of_records, ("cat", "dog", "mat")), (of_links, ("determiner", "12", "cat"))):
        done = subprocess.run([sys.executable, "-c", recipe], capture_output=True, text=True, cwd=at)
        assert done.returncode == 0 and all(word in done.stdout for word in words), done
