"""A token is shown, never obeyed: whatever somebody types, pipes or names a file, output is inert."""

import csv
import io
import json
import os
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from attn_cli import Settings, Trace
from attn_cli.errors import visible
from attn_cli.inputs.matrices import Given
from attn_cli.io.array_files import read_safetensors, write_safetensors
from attn_cli.io.files import data_path
from attn_cli.io.terminal import Terminal
from attn_cli.pipeline.sources.matrices import trace_matrices
from attn_cli.render.formats import render
from attn_cli.render.walk import Walk
from attn_cli.settings import View
from tests.cli.tables import apart, told, typed
from tests.shell import SGR, Ran, attn, here, terminal
from tests.thorough import often

CONTROLS = [f"a{chr(code)}b" for code in (*range(1, 0x20), *range(0x7F, 0xA0))]
RANGES = (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070))
SINGLE = "\xad\u034f\u061c\u115f\u180e\u2028\u2029\u3164\ufeff\U000e0001\U000e0041\ufff9"
UNSEEN = [f"a{char}b" for char in (*SINGLE, *map(chr, RANGES))]
SEQUENCES = ["\x1b[31mred", "\x1b]0;title\x07", "\x1b]52;c;aGk=\x07", "\x1b]8;;http://x\x1b\\y"]
SEQUENCES += ["\x9b31m", "\x1b[2J", "\x1bPq"]
MARKUP = ["[red]", "[/b]", "[link=file:///x]", ":smile:"]
MARKUP += ["<script>alert(1)</script>", "</script>", "&amp;", "<!--"]
SIGNED = r"a|b | \| | \ | ` | ``x`` | **b** | _i_ | ~~s~~ | [x](y) | ![x](y) | #h | - | 1. | |--|"
MARKDOWN = [*apart(SIGNED), "|"]
SIGNS = "=+-@＝＋－＠"  # with which a formula begins
FORMULAS = [*(f"{sign}1" for sign in SIGNS), "=1+1", "@x", "=cmd|'/c calc'!A0"]
FORMULAS += ['"', '"a","b"', "a,b", "a;b", "'=x"]
LATEX = ["\\input{x}", "$x$", "%", "{", "^_", "%s", "{0}", "%(x)s"]
HOSTILE = [*CONTROLS, *UNSEEN, *SEQUENCES, *MARKUP, *MARKDOWN, *FORMULAS, *LATEX]
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
ODD = [*MARKDOWN, *MARKUP, *SEQUENCES, "line\n# heading", "a\n\n<script>"]


def unsafe(text: str, allowed: str = "\n") -> list[str]:
    """Return the characters of text that a terminal would obey or hide; emoji may be joined."""
    found = []
    for i, char in enumerate(text):
        if unicodedata.category(char) not in HIDDEN or char in allowed:
            continue
        joins = char == "\u200d" and 0 < i < len(text) - 1
        if joins and all(unicodedata.category(c) in ("So", "Sk", "Mn") for c in (text[i - 1], text[i + 1])):
            continue
        found.append(f"{char!a} in {text[max(0, i - 10) : i + 10]!a}")
    return found


def inert(ran: Ran, colored: bool = False, allowed: str = "\n") -> Ran:
    """Check that neither stream holds anything but text, newlines and, where wanted, colours."""
    for text in (ran.out, ran.err):
        assert not unsafe(SGR.sub("", text) if colored else text, allowed), ran.code
    return ran


def given_tokens(tokens: list[str], **options: object) -> Trace:
    """Attend from tokens that no tokenizer would let through, such as one with a newline in it."""
    draw = np.random.default_rng(0)
    arrays = {name: draw.standard_normal((len(tokens), 3)) for name in "QKV"}
    made = Given("given", arrays, tokens=tuple(tokens), context_tokens=tuple(tokens))
    return trace_matrices("self", made, Settings(**options))  # type: ignore[arg-type]


TEXT = " ".join(HOSTILE)
TOKENS = [*filter(None, re.split("[^\\S\x1c\x1d\x1e\x1f\x85]+", TEXT))]  # those are no space to a reader
FORMATS = ["table", "bars", "markdown", "latex", "html", "svg", "csv", "tsv", "json", "jsonl", "explain"]


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_tokens_are_inert_in_every_format_and_in_json_as_they_are(format):
    command = ["explain"] if format == "explain" else ["self", "-f", format]
    args = [*command, "--tokenizer", "whitespace", "-e", "random", "--color", "always"]
    ran = attn(*args, "--width", "100", input=TEXT)
    assert ran.code == 0
    inert(ran, colored=format in ("table", "bars", "explain"), allowed="\n\t" if format == "tsv" else "\n")
    if format in ("json", "jsonl"):
        record = json.loads(ran.out)
        assert record["query_tokens"] == record["key_tokens"] == TOKENS
        assert [item["query"] for item in record["summary"]] == TOKENS
        assert format == "json" or ran.out.count("\n") == 1
    if format == "explain":
        ran = inert(terminal(*args[:-2], " ".join(SEQUENCES + MARKUP)), colored=True)
        assert ran.code == 0 and all(token in SGR.sub("", ran.out) for token in ("[red]", "[/b]", ":smile:"))


@pytest.mark.parametrize("tokenizer", ["words", "characters", "whitespace"])
def test_hostile_tokens_are_inert_from_every_tokenizer_and_in_every_note(tokenizer):
    few = " ".join(["\x1b[31mred", "a\x9bb", "x\u202ey", "[/b]", "\x07", "\x00", "zz\u200bqq", "\x7f"])
    for args in typed("explain | self -f csv | self -f json | masked --keep-punctuation"):
        # word2vec: some have no vector, and a note says so
        assert inert(attn(*args, "--tokenizer", tokenizer, input=few)).code == 0


@pytest.mark.parametrize(("format", "delimiter"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("tidy", [False, True])
def test_a_spreadsheet_cell_is_never_a_formula(format, delimiter, tidy):
    tokens = [*FORMULAS, "\t=1", "\r=1", "\n", *MARKUP[:3], "plain"]
    text = render(given_tokens(tokens), View(format=format, tidy=tidy), Terminal())
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    expected = [("'" if token[0] in f"{SIGNS}\t" else "") + visible(token) for token in tokens]
    if tidy:
        assert rows[0] == ["query", "key", "weight"]
        assert [row[:2] for row in rows[1:]] == [[q, k] for q in expected for k in expected]
    else:
        assert rows[0] == ["query", *expected] and [row[0] for row in rows[1:]] == expected
    for row in rows[1:]:
        assert len(row) == len(rows[0])
        assert all(float(cell) >= 0 for cell in row[2 if tidy else 1 :])
        assert all(cell[0] not in f"{SIGNS}\t\r" for cell in row)


def _cells(text: str) -> list[list[str]]:
    rows: list[list[str]] = []
    kinds = set()
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text):
        kinds |= {token.type, *(child.type for child in token.children or [])}
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline" and token.level >= 4 and rows:
            rows[-1].append("".join(child.content for child in token.children or []))
    html = {"html_inline", "html_block", "link_open", "image", "strong_open", "s_open"}
    obeyed = kinds & (html | {"hr", "fence", "code_block"})
    assert not obeyed, obeyed
    return rows


def test_markdown_shows_every_token_and_keeps_its_columns():
    tokens = [*MARKDOWN, *MARKUP, *LATEX, *FORMULAS]
    rows = _cells(render(given_tokens(tokens), View(format="markdown"), Terminal()))
    assert len(rows) == 1 + len(tokens)
    assert all(len(row) == len(tokens) + 2 for row in rows)
    assert rows[0][1:-1] == [row[0] for row in rows[1:]] == [visible(token) for token in tokens]


@pytest.mark.parametrize("token", ODD, ids=ascii)
def test_markdown_is_inert_in_its_sentences_too(token):
    """Also for readers that are laxer than the one here: no angle bracket is left outside code."""
    trace = given_tokens([token, "plain"], query="0")
    for walk in (False, True):
        text = render(trace, View(format="markdown", steps=True), Terminal(), Walk() if walk else None)
        assert not unsafe(text)
        bare = re.sub("`[^`]*`", "", text.replace("\\`", ""))  # an escaped one begins no code
        assert not set("<>") & set(bare.replace("-&gt;", ""))
        rows = _cells(text)
        assert any(row[0].startswith(visible(token)[:12]) for row in rows)
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert "# heading" not in headings


EVIL = "x\x1b]0;t\x07\x9b31m\u202ey\u200b"


ARGUMENTS = """
self "a b" -q EVIL | self a EVIL | self EVIL b c | self a --head EVIL | self a --mask EVIL | self a -e EVIL.txt
self a --mask EVIL.json --mask-true allowed | self a -e EVIL | self a -p EVIL.json | self a -p EVIL
self a -p EVIL.safetensors | self a --layer EVIL | learn EVIL | learn score EVIL x.conllu
learn score EVIL.safetensors x.conllu | learn score roles EVIL.conllu | learn score roles x.conllu -e EVIL
learn train EVIL.conllu -o x.safetensors | learn train x.conllu --relations EVIL -o x.safetensors
self a -o EVIL.doc | self a -o x.EVIL | self a -o EVIL/x.csv | self a --score EVIL | self a --seed EVIL
self a -t EVIL | self a --EVIL | self EVIL --oov error --tokenizer whitespace | EVIL | example EVIL
vectors EVIL | vectors nearest EVIL | vectors info EVIL.txt | vectors train EVIL.txt -o x.safetensors
--show-completion EVIL
"""


@pytest.mark.parametrize("args", typed(ARGUMENTS))
def test_hostile_arguments_are_inert_in_errors(args, at):
    args = [arg.replace("EVIL", EVIL) for arg in args]
    ran = inert(here(*args))
    assert ran.code in (2, 65, 66, 73) and ran.err.count("\n") == 1
    if "-o" not in args:
        error = json.loads(inert(here(*args, "-f", "json")).err)["error"]
        assert "\x1b" not in error["message"] and "\u202e" not in str(error["hint"])


def test_hostile_variables_and_bytes_that_are_not_utf_8_are_inert_in_errors():
    for name in ("COLOR", "SEED", "QUERY", "EMBEDDING", "MASK", "HEAD", "PROJECTION"):
        ran = inert(attn("self", "a b", env={f"ATTN_{name}": EVIL}))
        assert ran.code in (66, 78) and ran.err.count("\n") == 1, name
    for args in ([b"self", b"a b", b"-q", b"\xff\x9b"], [b"self", b"a", b"-e", b"\xff.txt"], [b"\xffx"]):
        ran = attn(*args)
        assert ran.code in (2, 66) and ran.err.encode("utf-8") and not unsafe(ran.err)


OF_FILES = """
self "a b" -e v.txt => 65 | self "a b" --mask m.txt --mask-true allowed => 65
self "a b" -p p.json -e random --dim 2 => 0 | self "a b" -p p.json -f csv -e random --dim 2 => 0
self "a b" -p q.json -e random --dim 2 => 65 | vectors info t.safetensors => 0
vectors info t.safetensors -f json => 0 | vectors nearest EVIL -e t.safetensors => 0
self "a b" -e EVIL.txt => 0 | explain "a b" -e EVIL.txt => 0 | vectors info EVIL.txt => 0
self "a b" -o newEVIL.json => 0
"""
OF_ITS_HEADS = """
self | explain | explain -q likes | self -f bars | self --head all | self --head all --precision 3
self --head all -f bars | self --head mean | self --steps | self -f csv | cross coffee
"""
OF_A_MODEL = """
self she -p MODEL --head nosuch => 2 | self she -p MODEL --layer 5 => 2 | self she -p MODEL --heads 2 => 2
self she -p MODEL -e random => 65 | learn score MODEL none.conllu => 66
"""


def test_hostile_files_and_their_names_are_inert_in_errors_and_reports(at):
    eye = [[1.0, 0], [0, 1.0]]
    Path("v.txt").write_text(f"a 1 {EVIL}\n", encoding="utf-8")
    Path("m.txt").write_text(f"1 {EVIL}\n", encoding="utf-8")
    Path(f"{EVIL}.txt").write_text("a 1 2\nb 3 4\n")
    Path("p.json").write_text(json.dumps({"W_q": eye, "W_k": eye, "W_v": eye, EVIL: 1}))
    Path("q.json").write_text(json.dumps({"W_q": [[EVIL]], "W_k": eye, "W_v": eye, "layout": EVIL}))
    about = {"format": "attn-vectors/1", "settings": json.dumps({EVIL: EVIL}), EVIL: EVIL}
    with Path("t.safetensors").open("wb") as stream:
        words = np.frombuffer(EVIL.encode(), np.uint8)
        write_safetensors(stream, {"vectors": np.zeros((1, 2)), "words": words}, about)
    for args, code in told(OF_FILES):
        assert inert(here(*(arg.replace("EVIL", EVIL) for arg in args))).code == int(code), args
    assert f"new{EVIL}.json" in os.listdir()
    record = json.loads(here("self", "a b", "-e", f"{EVIL}.txt", "-f", "json").out)
    assert record["embedding"]["source"] == "file"


def test_a_hostile_model_is_inert_whatever_it_says_of_itself(at):
    """Names of heads, what they were taught, and treebanks' names come from the file, so anybody wrote them."""
    arrays, about = read_safetensors(str(data_path("roles.safetensors")))
    names = [f"{token} {n}" for n, token in enumerate([EVIL, *SEQUENCES, *MARKUP, *MARKDOWN])]
    names = names[: len(json.loads(str(about["heads"])))]
    facts = {"about": dict.fromkeys(names, EVIL), "trained_on": [EVIL, f"{EVIL}.conllu"], "scored_on": EVIL}
    facts |= {"scores": {one: {"accuracy": 0.5, "baseline": 0.25} for one in names}, "values": "words"}
    name = f"{EVIL}.safetensors"
    with Path(name).open("wb") as stream:
        write_safetensors(stream, arrays, about | {"heads": json.dumps(names), "facts": json.dumps(facts)})
    own = ("she likes coffee", "-p", name)
    for args in [*typed(OF_ITS_HEADS), ["self", "--head", names[1]]]:
        assert inert(here(*args, *own)).code == 0, args
        assert not unsafe(SGR.sub("", here(*args, *own, "--color", "always").out))
    for args in (["self"], ["explain"], ["self", "--head", "all"]):
        text = inert(here(*args, *own, "-f", "markdown")).out
        assert not set("<>") & set(re.sub("`[^`]*`", "", text).replace("-&gt;", ""))
    record = json.loads(inert(here("self", *own, "-f", "json")).out)
    assert record["head"] == names[0] and record["learned"]["about"] == EVIL
    for args, code in told(OF_A_MODEL):
        assert inert(here(*(name if arg == "MODEL" else arg for arg in args))).code == int(code), args
    Path(f"{EVIL}.conllu").write_text(f"1\t{EVIL}\t_\tX\t_\t_\t0\t{EVIL}\t_\t_\n\n", encoding="utf-8")
    for args in ([], ["-f", "json"]):
        ran = inert(here("learn", "score", "roles", f"{EVIL}.conllu", *args))
        assert ran.code == 0 and (args or visible(EVIL) in ran.out)
    for row in (f"1\t{EVIL}", f"1\tx\t_\tX\t_\t_\t{EVIL}\tx\t_\t_", f"{EVIL}\tx\t_\tX\t_\t_\t0\tx\t_\t_"):
        Path("bad.conllu").write_text(f"{row}\n\n", encoding="utf-8")
        assert inert(here("learn", "score", "roles", "bad.conllu")).code == 65


def words() -> st.SearchStrategy[list[str]]:
    odd = st.characters(categories=["Cc", "Cf", "Cs", "Mn", "Me", "Zs", "Zl", "So"])
    letters = st.one_of(st.characters(), odd, st.sampled_from(sorted("|`\\*_[]()<>#=+-@'\",;\t\n ")))
    return st.lists(st.text(letters, min_size=1, max_size=10), min_size=1, max_size=6)


@settings(max_examples=often(150), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    tokens=words(),
    width=st.sampled_from([20, 24, 40, 80, None]),
    colors=st.sampled_from([0, 256]),
    encoding=st.sampled_from(["utf-8", "ascii", "latin-1"]),
    mask=st.sampled_from(["none", "causal"]),
)
@example(["\ud800", "\x1b", "a\udfff", "nul\0", "\U0010ffff", "e\u0301"], 40, 256, "utf-8", "none")
@example(["\u0301", "\u200d\u200d", "\ufe0f"], 24, 0, "utf-8", "causal")
@example(["世界" * 20, "a" * 30], 20, 0, "utf-8", "none")  # wide, and longer than a line
@example([" ", "\u3000", "\xa0", "  x"], 24, 0, "utf-8", "none")
@example(["\\", "|", "`", "\\\\|", "a\nb", "tab\tstop", "\u2028"], None, 0, "ascii", "none")
def test_any_tokens_are_inert_fit_and_keep_their_columns(tokens, width, colors, encoding, mask):
    trace = given_tokens(tokens, mask=mask)
    screen = Terminal(width=width, colors=colors, encoding=encoding)
    for name, walk in (("table", False), ("bars", False), ("table", True)):
        text = SGR.sub("", render(trace, View(format=name, width=width), screen, Walk() if walk else None))
        assert not unsafe(text)
        assert width is None or max(map(cell_len, text.split("\n"))) <= width
        assert re.search(r"\d", text)
    # The few marks of ours that are not ASCII are spelled on the way out.
    assert encoding != "ascii" or all(screen.text(token).isascii() for token in tokens)
    for name in ("json", "jsonl"):
        text = render(trace, View(format=name, steps=True), screen)
        assert json.loads(text)["query_tokens"] == tokens
        assert not unsafe(text) and text.encode("utf-8")
    trace, n = given_tokens(tokens), len(tokens)
    for name, delimiter in (("csv", ","), ("tsv", "\t")):
        text = render(trace, View(format=name), Terminal())
        assert not unsafe(text, "\n\t" if name == "tsv" else "\n")
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        assert [len(row) for row in rows] == [n + 1] * (n + 1)
    for walk in (False, True):
        text = render(trace, View(format="markdown"), Terminal(), Walk() if walk else None)
        assert not unsafe(text)
        widths = {len(row) for row in _cells(text) if row[0] == "query\\key"}
        # With and without the sums; a story may have none.
        assert widths <= {n + 1, n + 2} and (walk or n + 2 in widths)
