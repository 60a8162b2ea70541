"""The long form, a row a link: it says what the records say, in every form, of one text and of many."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.alike import assert_alike
from tests.shell import here

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402  # after the library is known to be there

LINES = ["She likes coffee", "the cat sat on the mat", "dog"]
COLUMNS = ["text", "layer", "head", "query", "key", "weight", "query_index", "key_index"]
RANDOM = ("-e", "random", "--heads", "2")


@pytest.fixture(autouse=True)
def lines(at):
    Path("lines.txt").write_text("".join(f"{line}\n" for line in LINES))


def printed(kind, text, *options):
    return json.loads(here(kind, text, *options, "-f", "json").out)


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
                    yield dict(zip(COLUMNS, (*same, head["weights"][i][j], places[i], j), strict=True))


CASES = [
    *(("self",), ("self", "--head", "all"), ("masked", "-p", "roles", "--head", "all")),
    ("self", *RANDOM, "--head", "all", "--mask", "window:1"),
    *(("self", "-p", "roles-deep", "--layer", "all"), ("self", *RANDOM, "--head", "mean")),
]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_each_link_that_is_not_masked_is_a_row(case):
    kind, *options = case
    wanted = [
        link
        for number, text in enumerate(LINES, 1)
        for link in links_of(
            number, printed(kind, text, *options) | ({"heads": []} if "mean" in case else {})
        )
    ]
    assert here("batch", "lines.txt", "--kind", kind, "--tidy", "-o", "x.parquet", *options) == (0, "", "")
    table = parquet.read_table("x.parquet")
    assert table.schema.metadata[b"attn.schema"] == b"attn-links/1"
    assert_alike(table.to_pylist(), wanted)
    rows = csv.DictReader(here("batch", "lines.txt", "--kind", kind, "-f", "csv", *options).out.splitlines())
    assert [*rows] == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in table.to_pylist()
    ]
    assert here(kind, LINES[1], "-o", "y.parquet", *options).code == 0
    of_text = [{**row, "text": 1} for row in table.to_pylist() if row["text"] == 2]
    assert_alike(parquet.read_table("y.parquet").to_pylist(), of_text)


def test_the_strongest_links_and_the_rows_asked_for_stand_alone():
    options = ("--head", "all", "--top", "2", "-q", "the")
    assert here("self", LINES[1], *options, "-o", "x.parquet") == (0, "", "")
    rows = parquet.read_table("x.parquet").to_pylist()
    whole = printed("self", LINES[1], "--head", "all")
    wanted = [
        (head["name"], i, weight)
        for head in whole["heads"]
        for i in (0, 4)
        for weight in sorted(head["weights"][i], reverse=True)[:2]
    ]
    assert_alike([(row["head"], row["query_index"], row["weight"]) for row in rows], wanted)
    assert all(row["key"] == LINES[1].split()[row["key_index"]] for row in rows)
    record = json.loads(here("batch", "lines.txt", "--head", "all", "--top", "2").out.splitlines()[1])
    assert_alike([link[2] for link in record["heads"][0]["links"][:2]], [weight for *_, weight in wanted[:2]])


def test_every_form_has_the_same_rows_whatever_the_processes():
    Path("lines.txt").write_text("she likes\n=1+1 [red]\n" * 300)
    for form in ("parquet", "csv"):
        for workers in ("1", "3"):
            to = ("-o", f"{workers}.{form}", "--workers", workers)
            assert here("batch", "lines.txt", "--tidy", *to).code == 0
        assert Path(f"1.{form}").read_bytes() == Path(f"3.{form}").read_bytes()
    wanted = parquet.read_table("1.parquet").to_pylist()
    assert here("batch", "lines.txt", "--tidy", "-o", "x.arrow").code == 0
    assert pa.ipc.open_file("x.arrow").read_all().to_pylist() == wanted
    assert here("batch", "lines.txt", "--tidy", "-f", "npz", "-o", "out/").code == 0
    assert np.load("out/part-00000.npz")["weight"].tolist() == [row["weight"] for row in wanted]
    head, *rows = csv.reader(Path("1.csv").read_text().splitlines())
    assert (head, len(rows), rows[4][3]) == (COLUMNS, len(wanted), "'=")


def test_a_refused_line_has_no_row():
    Path("lines.txt").write_text("a b\n...\ndog\n")
    got = here("batch", "lines.txt", "-f", "csv", "--keep-going")
    assert got.code == 65 and "1 of 3 lines was refused" in got.err
    assert [line[0] for line in got.out.splitlines()[1:]] == ["1"] * 4 + ["3"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("batch", "lines.txt", "--tidy"), "parquet, arrow, npz, csv"),
        (("batch", "lines.txt", "-f", "csv", "--fields", "weights"), "--fields does not apply"),
        (("batch", "lines.txt", "--tidy", "-o", "x.parquet", "--steps"), "--steps does not apply"),
        (("self", "a cat", "--tidy", "-f", "json"), "-f parquet"),
        (("heads", "a cat", "-o", "x.parquet"), "parquet"),
        (("batch", "lines.txt", "--fields", "heads.q", "-o", "x.parquet"), "Columns are heads.name"),
    ],
)
def test_what_has_no_such_table_says_so(args, said):
    got = here(*args)
    assert got.code == 2 and said in got.err and not Path("x.parquet").exists()


def test_all_heads_of_a_line_are_in_its_record_and_in_a_table_of_records():
    records = [json.loads(line) for line in here("batch", "lines.txt", "--head", "all").out.splitlines()]
    assert here("batch", "lines.txt", "--head", "all", "-o", "x.parquet") == (0, "", "")
    for text, record, row in zip(LINES, records, parquet.read_table("x.parquet").to_pylist(), strict=True):
        whole = printed("self", text, "--head", "all")
        heads = [{key: head[key] for key in ("name", "layer", "weights")} for head in whole["heads"]]
        assert len(heads) > 5
        assert_alike(record["heads"], heads)
        assert_alike(row["heads"], heads)
        assert_alike(record["weights"], whole["weights"])


def test_entropy_has_a_number_for_each_row_of_each_head():
    Path("lines.txt").write_text("She likes coffee\n")
    options = (*RANDOM, "--head", "all", "--kind", "masked", "--without", "She")
    fields = ("--fields", "entropy,heads.weights,diagnostics")
    record, *_ = (json.loads(line) for line in here("batch", "lines.txt", *options, *fields).out.splitlines())
    wanted = [
        [sum(-w * math.log2(w) for w in row if w) if any(row) else None for row in head["weights"]]
        for head in record["heads"]
    ]
    assert len(wanted) == 2 and wanted[0][0] is None
    assert_alike(record["entropy"], wanted)
    assert here("batch", "lines.txt", *options, *fields, "-o", "x.parquet") == (0, "", "")
    row = parquet.read_table("x.parquet").to_pylist()[0]
    assert_alike(
        {key: row[key] for key in ("entropy", "heads", "diagnostics")},
        {key: record[key] for key in ("entropy", "heads", "diagnostics")},
    )
    alone = printed("self", "the cat sat", "--fields", "entropy,diagnostics")
    assert_alike(alone["entropy"], [[one["entropy"] for one in alone["diagnostics"]]])
    assert "entropy" not in printed("self", "the cat sat")
