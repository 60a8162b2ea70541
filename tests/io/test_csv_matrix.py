"""A matrix from CSV or TSV: with labels or without, as spreadsheets, pandas, NumPy and attn itself write it."""

import contextlib
import json
import random
import string

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.errors import FileError, InputError
from attn_cli.inputs.csv_matrix import as_cell, read_sheet, unguarded
from attn_cli.inputs.matrices import given_from, read_given
from attn_cli.inputs.record import read_record
from attn_cli.pipeline.sources.matrices import trace_matrices
from tests.shell import here, told
from tests.thorough import often

NUMBERS = [[0.1, -2.0, 3.5], [40.0, 0.5, -0.25]]
SHEETS = {
    "numbers alone": ("0.1,-2,3.5\n40,.5,-0.25\n", None, None),
    "spaces, CRLF and a byte-order mark": ("\ufeff0.1, -2, 3.5\r\n40, 0.5, -0.25\r\n", None, None),
    "no last newline, an empty line": ("0.1,-2,3.5\n\n40,0.5,-0.25", None, None),
    "powers of ten": ("1e-1,-2E0,3.5\n4e1,5e-1,-2.5e-1", None, None),
    "headings": ("a,b,c\n0.1,-2,3.5\n40,0.5,-0.25", None, ["a", "b", "c"]),
    "labels": ("she,0.1,-2,3.5\nruns,40,0.5,-0.25", ["she", "runs"], None),
    "both": (",a,b,c\nshe,0.1,-2,3.5\nruns,40,0.5,-0.25", ["she", "runs"], ["a", "b", "c"]),
    "both, of attn": ("query,a,b,c\nshe,0.1,-2,3.5\nruns,40,0.5,-0.25", ["she", "runs"], ["a", "b", "c"]),
    "both, without a corner": ("a,b,c\nshe,0.1,-2,3.5\nruns,40,0.5,-0.25", ["she", "runs"], ["a", "b", "c"]),
    "one heading of three is a number": ("a,7,c\n0.1,-2,3.5\n40,0.5,-0.25", None, ["a", "7", "c"]),
    "labels of attn that are numbers": ("query,1,2,3\n4,0.1,-2,3.5\n5,40,0.5,-0.25", ["4", "5"], ["1", "2", "3"]),
    "numbers above words": ("7,8,9\nshe,0.1,-2,3.5\nruns,40,0.5,-0.25", ["she", "runs"], ["7", "8", "9"]),
    "pandas' numbers": (",0,1,2\n0,0.1,-2,3.5\n1,40,0.5,-0.25", ["0", "1"], ["0", "1", "2"]),
    "quotes": ('"a, b","say ""hi""","c\nd"\n"0.1","-2","3.5"\n40,0.5,-0.25', None, ["a, b", 'say "hi"', "c\nd"]),
    "guarded labels": ("query,x,'=1,'@\n'＠1,0.1,-2,3.5\n'-,40,0.5,-0.25", ["＠1", "-"], ["x", "=1", "@"]),
    "an apostrophe of its own": ("'tis,0.1,-2,3.5\n's,40,0.5,-0.25", ["'tis", "'s"], None),
    "semicolons and decimal commas": ("she;0,1;-2;3,5\nruns;40;0,5;-0,25", ["she", "runs"], None),
    "semicolons and points": ("0.1;-2;3.5\n40;0.5;-0.25", None, None),
}  # fmt: skip


def read_csv(path):
    cells, rows, columns = read_sheet(path)
    return np.array(cells, np.float64), rows, columns


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_matrix_is_read_with_or_without_labels(sheet, file):
    text, rows, columns = SHEETS[sheet]
    found = read_csv(file(text, "m.csv"))
    assert (found[0].tolist(), found[1], found[2]) == (NUMBERS, rows, columns)


def test_a_tsv_is_separated_by_tabs_and_what_a_mask_leaves_is_no_number_and_no_corner(file):
    matrix, rows, columns = read_csv(file("\ta,b\tc;d\nx,y\t0.5\t-1\nz\t2\t0,25\n", "m.tsv"))
    assert (matrix.tolist(), rows, columns) == ([[0.5, -1], [2, 0.25]], ["x,y", "z"], ["a,b", "c;d"])
    assert read_csv(file("1,5\n2,5\n", "m.TSV"))[0].tolist() == [[1.5], [2.5]]
    nan, inf = np.nan, np.inf
    text = "a,1,\nb,NaN,0.5\nc,,\nd,-inf,null\ne,NA,None\nf,+Infinity,∞\n"
    matrix, rows, _ = read_csv(file(text, "m.csv"))
    wanted = [[1, nan], [nan, 0.5], [nan] * 2, [-inf, nan], [nan] * 2, [inf] * 2]
    np.testing.assert_array_equal(matrix, wanted)
    assert rows == [*"abcdef"]
    for text, beside in {",0.25,0.75\n,,\n,,1\n": None, ",0,1\n,1,2\nb,3,4\n": ["", "", "b"]}.items():
        matrix, rows, columns = read_csv(file(text, "m.csv"))
        assert (matrix.shape, rows, columns) == ((3, 2 if beside else 3), beside, None)


NO_MATRIX = [
    *(("", "holds no numbers"), ("\n \n", "holds no numbers"), ("word\nword\n", "'word' is not a number")),
    *(("1,2\n3\n", "line 2: the row has 1 cell, line 1 has 2"), (b"\xff\xfe1\x00", "UTF-16")),
    *((f"{row}\n3,x\n", "line 2, column 2: 'x' is not a number") for row in ("1,2", "a,b")),
    ("query,key,weight\na,b,0.5\nb,a,1\n", "line 2, column 2: 'b' is not a number"),
    ("a,b,c,d\n1,2\n3,4\n", "4 headings over 2 columns"),
    ("10\nx,1\n", "line 2: the row has 2 cells, line 1 has 1"),
    ("10,20\nx,1,2\n5,3,4\n", "the row has 3 cells"),
    ("\n1,2\n\n3,x;\n", "line 4, column 2: 'x;' is not a number"),
    ("1,1_000\n", "line 1, column 2: '1_000' is not a number"),
    ("1,\x1b[31mred\n", "line 1, column 2: '^[[31mred' is not a number"),
    ('1,"2\n3,4\n', "line 2: unexpected end of data"),
    ("1," + "9" * 200_000, "line 1: field larger than field limit"),
]


@pytest.mark.parametrize(("text", "said"), NO_MATRIX, ids=range(len(NO_MATRIX)))
def test_what_is_no_matrix_is_refused_and_its_place_named(text, said, file):
    path = file(text, "m.csv")
    with pytest.raises(InputError) as error:
        read_csv(path)
    assert said in error.value.message and error.value.message.startswith(path)


def test_any_text_is_a_matrix_or_is_refused(file):
    draw = random.Random(7)
    alphabet = '0123456789.,;-e"\n\t a' + string.ascii_letters[:3] + "é\x00'"
    for _ in range(often(3000)):
        text = "".join(draw.choices(alphabet, k=draw.randint(0, 25)))
        with contextlib.suppress(InputError):
            matrix, rows, columns = read_csv(file(text, "m.csv"))
            assert matrix.ndim == 2 and matrix.size
            assert rows is None or len(rows) == len(matrix)
            assert columns is None or len(columns) == matrix.shape[1]


def test_numbers_may_be_kept_as_they_are_written(file):
    assert read_sheet(file("a,0.30,-1\nb,,2e1\n", "m.csv")).cells == [["0.30", "-1"], ["nan", "2e1"]]
    record = read_record(file("0.30,0.7\n0.125,\n", "weights.csv"), as_written=True)
    assert [[number.decimals for number in row] for row in record["weights"]] == [[2, 1], [3, 0]]
    text = '{"weights": [[0.300, 7.5e-3, 1.5e-123, 1e-%s]]}' % ("9" * 5000)
    (row,) = read_record(file(text, "m.json"), as_written=True)["weights"]
    assert row == [0.3, 0.0075, 1.5e-123, 0] and [number.decimals for number in row] == [3, 4, 124, 400]
    for sign in "=+-@\t＝＋－＠":
        assert str(as_cell(f"{sign}1"))[0] == "'" and unguarded(f"'{sign}1") == f"{sign}1"


def test_the_name_of_a_file_is_the_name_of_its_matrix_and_labels_are_tokens(file):
    Q, K, V = ([[1.0, 2.0]], [[0.5, 1.0], [2.0, 0.0]], [[3.0], [4.0]])
    record = {}
    for name, text in (("Q", "who,1,2"), ("k", "red,0.5,1\nblue,2,0"), ("V", "value\n3\n4")):
        record |= read_record(file(text, f"{name}.CSV"))
    given = given_from(record, "three files")
    assert {name: matrix.tolist() for name, matrix in given.arrays.items()} == {"Q": Q, "K": K, "V": V}
    trace = trace_matrices("compute", given, Settings())
    assert (trace.query_tokens, trace.key_tokens) == (("who",), ("red", "blue"))
    labelled = read_record(file("query,a,b\nx,1,0\ny,0,1\n", "weights.csv"))
    assert (labelled["tokens"], labelled["context_tokens"]) == (["x", "y"], ["a", "b"])
    assert set(read_record(file("query,a,b\nx,1,0\ny,0,1\n", "W_q.csv"))) == {"W_q"}


def test_an_archive_is_told_by_its_content_a_file_may_not_be_there_and_an_empty_cell_is_no_number(at, file):
    np.savez(at / "m.npz", X=np.eye(2))
    (at / "m.npz").rename("m.csv")
    assert read_given("m.csv").arrays["X"].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(FileError):
        read_csv("none.csv")
    with pytest.raises(InputError, match=r"X holds a number that is not finite, at \(0, 1\)"):
        read_given(file("1,\n2,3\n", "X.csv"))


def test_links_of_a_long_text_tell_their_places():
    words, of = ["she", "likes", "tea"] * 340, ("-e", "random", "--top", "1")
    links = json.loads(here("self", " ".join(words), *of, "-f", "json").out)["links"]
    expected = [f"{words[i]},{words[j]},{weight!r},{i},{j}" for i, j, weight in links]
    shown = here("self", " ".join(words), *of, "-f", "csv").out.splitlines()
    assert shown == ["query,key,weight,query_row,key_column", *expected]
    assert told("self", "she likes tea", *of, "-f", "csv").startswith("query,key,weight\n")
