"""Every exit code that a user can meet, the one line or JSON object that comes with it, and what it suggests."""

import ast
import errno
import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_cli.cli.report_error import MOVED
from attn_cli.errors import did_you_mean, visible
from attn_cli.io.array_files import write_safetensors
from attn_cli.io.files import data_path
from attn_cli.pipeline.sources.text import trace_self
from attn_cli.render.views.steps import walk
from attn_cli.settings import Settings
from tests.cli.tables import apart, told, typed
from tests.schema import complaints
from tests.shell import Ran, attn, here, pasted, shell
from tests.thorough import like_cases, often, takes_long

BODY = [[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
ABOUT = {"format": "attn-vectors/1"}
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, /proc, or a limit on memory")


def refused(ran: Ran, code: int, *said: str) -> str:
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
    assert ran.err.startswith("attn: ") and ran.err.endswith("\n") and "bug" not in ran.err
    assert all(text in ran.err for text in said) and ran.err.count("Did you mean") <= 1, ran.err
    return ran.err


def refused_as_json(ran: Ran, code: int) -> dict[str, object]:
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
    record = json.loads(ran.err)
    assert complaints(record) == []
    error = record["error"]
    assert error["code"] == code and error["line"] is None and len(error["message"]) >= 8
    return error


WRONG = """
    self the cat sat => put quotes round it; attn self "the cat sat" | masked the cat sat => attn masked "the
    explain the cat sat => attn explain "the cat sat" | cross the cat sat => put quotes round each
    self x --figure links => ends in .png, .pdf or .svg
    self x --figure links -o x.txt => not into 'x.txt'. Type -o links.png.
    self x --figure bars -o x.png -f table => Leave out -f
    self x --figure lnks -o x.png => Did you mean links? | self x -f csv -o x.png => cannot hold csv
    self x -f table -o x.npz => cannot hold table | self x -o x.jpg => .png
    self x --size 8x4 -o x.svg => --size applies only to figures | self x --title '' => only to figures
    self x --dpi 29 -o x.png => 30 to 1,200 | self x --size 8 -o x.png => as 8x4.5
    self x --size 0x4 -o x.png => 1 to 50 inches | self x --show mask -o x.png => --show mask has no figure
    explain "the cat" --only scores -o x.png => no figure
    explain "the cat" --swap cat=dog -o x.png => no figure | explain "the cat" --pause -o x.png => --pause
    example -o x.png => no figure | example dictionary -o x.png => no figure
    lookup cat dog=1 -o x.png => no figure
    compare "the cat" --vary score=scaled,dot --figure links -o x.png => links
    explain x --pause -f bars => --pause | example coffee --pause -o walk.md => --pause
    example --pause => coffee | explain x --only scores -f bars -o x.svg => --only has no bars form
    explain x --only scores -f json -o a.npy => Type -o a.json.
    explain x --only scores -o a.foo => Use .txt .json .jsonl .md .markdown .tex .html .htm .svg, or choose one with -f.
    self x --verified => --verified requires --model.
    heads x -m m -p roles => --model and --projection exclude | page x --words -1 => --words cannot be -1.
    page x --words 100001 => from 0 to 100,000.
    page x --exact 'object, subjet' => There is no head 'subjet'. Did you mean subject? Name a head, or LAYER/HEAD.
    self x --fields weights => --fields requires -f json or -f jsonl.
    self x --fields weights -f csv => --fields requires -f json
    self x --fields weights -f npy -o x.npy => requires -f json
    self x --fields weights -o x.md => requires -f
    heads "a text" -m somewhere --array x => --array requires --weights
    self x --layer 1.5 => --layer cannot be | self x --layer 100001 => --layer cannot be
    self x -p roles-deep --layer mean => applies only to saved weights
    self x --join-pieces => --join-pieces needs a model
    masked x --hide-special => --hide-special needs a model
    explain x --renormalize => --renormalize needs a model | explain x --next 3 => --model
    compare x --next 3 --vary score=dot,scaled => --next
    self x -p language --next 0 --next-at all => nothing to show with --next 0; Try --next 3, or leave out --next-at.
    masked x -p language --next 0 --next-at all => --next 0
    explain x -p language --next 0 --next-at all => --next 0 | masked x -p language --next 51 => 51
    self x --without cat => There is no token 'cat' to switch off. | self --bogus x => --bogus
    self x -f => -f | self x --top many => many | self x -e random --dim 0 => --dim
    self x --heads 7 => 1, 2, 4, 5, 10, 20, 25, 50, 100 | self x --head 77 => 77
    self x --head 11 => relations, head, subject | self x -p identity --head subject => 0, mean and all
    self x -p roles --heads 2 => --heads | self x --layer last => last
    self x --head 3 --heads 2 => 0, 1, mean | self "a b" -q zebra => zebra | self "a b" -q 2 => 0 to 1
    self "a b" -q -1 => -1 | self x -t 1e-320 => 1e-320 | self x --seed 1.5 => 1.5
    self x --width 19 => 20 to 10,000 | self x --mask window:-1 => window:-1 | self x -e '' => -e
    self x --tidy => -f csv | self x -o picture.gif => .gif | self x -o picture => picture
    example tea => coffee-notebook | example coffee day1 => day1 | example coffee --head 5 => 5
    example coffee --heads 3 => 1, 2, 4 | example day1 -p random => Q, K and V
    example day1 -e random => day1 has no words to look up. | effect x --strongest 1001 => range 1<=x<=1000
    learn => --help | learn score => MODEL | learn score roles => TREEBANK
    learn score role x.conllu => roles, roles-deep | learn score roles x.conllu -f csv => csv
    learn score roles x.conllu -o score.csv => csv | learn score roles x.conllu -e bogus => bogus
    learn train -o x.safetensors => TREEBANK | learn train x.conllu => --output | vectors => --help
    vectors nearest => WORD | vectors nearest the --top 0 => --top
    vectors nearest the --precision 18 => --precision | vectors nearest the -o list.csv => csv
    vectors info bogus => bogus | vectors info -f csv => csv | vectors train text.txt => --output
    vectors train -o x.safetensors => CORPUS | schema please => please | --show-completion tcsh => tcsh
    --show-completion => --show-completion | generate x --count 0 => '--count': 0 is not in the range
    generate x --top-p 1.5 => 1.5 is not in the range | generate x --stop fox --stop '' => --stop is empty
    generate x --head nobody => There is no head 'nobody'
    generate x --head subject => There is no head 'subject'
    generate x --sample-temperature nan => --sample-temperature cannot be nan
    generate x --top-p nan => --top-p cannot be nan | generate x -f csv => csv
    generate '' --layer 9 => There is no layer 9 | generate '?!' --head nobody => There is no head 'nobody'
    generate x --temperature 2 => --temperature
    heads --probe "the cat" => TEXT and --probe exclude each other | heads --probe -f npy => no npy form
    heads --probe -p likeness => likeness has no heads | heads --probe -m x -p roles => exclude each other
    heads "the cat" --texts t.txt => TEXT and --texts exclude each other
    heads --texts t.txt -f npy => no npy form
    heads --texts t.txt --rollout => --rollout and --texts exclude
    heads --texts t.txt --array x => --weights | heads --texts t.txt --context x => --context and --texts
    vectors export -o x.bin --words 0 => --words cannot be 0.
    effect "the cat" --knock-out-with zero => --knock-out-with is for --measure knock-out
    heads --weights w.npz --knock-out 0.1 => nothing is computed from what the heads of w.npz give
    effect "the cat" --context b => A second text is for a model
    effect "the cat" --target dog --against dog => The two words to compare are one: dog
    lens "ab a" -p roles => says no words | lens "ab a" --pair b => --pair
    lens "ab a" --figure links -o x.svg => no figure of links | lens "ab a" -f page -o x.html => 'page'
    patch "the cat" "the cat" => The two texts are the same | patch "the cat" => missing. Try: attn patch
    patch - - => only one of CLEAN and CORRUPT | patch a b c => 3 texts were given where two are wanted
    patch a b --target qqqq => qqqq is no word of language
    patch a b --against qqqq => qqqq is no word of language
    patch a b --context c => with an encoder and a decoder
    patch a b -f code:numpy => 'code:numpy' is not one of | self x --seed 1180591620717411303424 => --seed
    self x -o a.csv -f html => Type -o a.html, or leave out -f for csv.
    self x -o a.b/a.SVG -f html => Type -o a.b/a.html, or leave out -f for svg.
    self x -o a.tex -f bars => Type -o a.txt, or leave out -f for latex.
    self x -o a.pdf -f markdown => Type -o a.md, or leave out -f for a figure.
    self x -o a.npy -f code:keras => Type -o a.py, or leave out -f for npy.
    self x -f json -o a.csv => Type -o a.json, or leave out -f for csv.
    self x -f json -o a.jsonl => Type -o a.json, or leave out -f for jsonl.
    self x -f json --fields weights, => cannot be '' | self x -f json --fields '' => cannot be ''
    self x -f json --fields haeds.q => Did you mean heads?
    self x -f json --fields \x1b[31m => cannot be '^[[31m'
    self x -f json --fields embedding. => embedding has no key ''.
    -- self cat -f json --score best => 'best'
"""


@pytest.mark.parametrize(("args", "said"), told(WRONG))
def test_wrong_usage_is_2_and_names_what_is_wrong(args, said, at):
    if "-f json " in f"{' '.join(args)} ":
        error = refused_as_json(here(*args), 2)
        assert said in f"{error['message']} {error['hint']}"
    else:
        refused(here(*args), 2, *said.split("; "))
    assert list(at.iterdir()) == []


def test_training_options_out_of_range_are_2_and_say_the_range(at):
    Path("text.txt").write_text("a b\n")
    train = ("vectors", "train", "text.txt", "-o", "x.safetensors")
    for option, value in (("--dim", "0"), ("--epochs", "-1"), ("--seed", "-1"), ("--length", "nan")):
        refused(here(*train, option, value), 2, option)
    said = refused(here(*train, "--seed", str(1 << 40)), 2)
    assert "Give 0 or more." not in said, "1099511627776 is more than 0"
    refused(here(*train[:-1], "vectors.pdf", "--min-count", "1"), 2, ".pdf")
    assert not Path("vectors.pdf").exists()
    Path("x.safetensors").mkdir()
    ran = attn(*train, "--min-count", "1")
    assert ran.code == 73 and "epoch" not in ran.err
    for name in (".", "/dev/zero"):
        refused(attn("vectors", "train", name, "-o", "y.safetensors", timeout=30), 66)
    assert {path.name for path in at.iterdir()} == {"text.txt", "x.safetensors"}


def test_attn_alone_is_2_standard_input_serves_one_text_and_a_closed_stream_changes_no_code():
    ran = attn()
    assert (ran.code, ran.out) == (2, "") and "Traceback" not in ran.err
    assert "explain" in ran.err and "Start with" in ran.err
    assert here("--version", "self", "the").out == here("--version").out == here("-V").out
    for line in ("cross - -", "cross -", "explain - --context -", "explain --context -"):
        refused(attn(*line.split(), input="the cat"), 2, "Standard input")
    ran = shell("attn self <&-")
    assert ran.code == 2 and "text" in ran.err
    assert shell("attn self x <&-").code == 0
    assert shell('attn self x 2>&-; test $? = 0 && attn self "" 2>&-').code == 65


def test_a_text_without_tokens_is_65_and_bytes_that_are_not_utf_8_are_replaced_and_noted():
    for text in ("", "   ", "\n\n", "... !", "\ufeff"):
        refused(attn("self", input=text), 65, "nothing to attend to")
    refused(here("cross", "", "the cat"), 65, "text")
    refused(here("cross", "the cat", "..."), 65, "context")
    for encoding in ("utf-16-le", "utf-16-be"):
        refused(attn("self", input=("\ufeffthe cat").encode(encoding)), 65, "UTF-16", "iconv")
    noir = b"caf\xe9 noir"
    for ran in (attn("self", noir, "-e", "random"), attn("self", "-e", "random", input=noir)):
        assert ran.code == 0 and "\ufffd" in ran.out and "not UTF-8" in ran.out


def _weights(**changed: object) -> bytes:
    return json.dumps({"W_q": BODY, "W_k": BODY, "W_v": BODY, **changed}).encode()


MASKS = """
[[true,null],[true,true]] | [1,0] | [[NaN,1],[0,1]] | [[[1,0],[0,1]]] | {"mask":{"a":1}} | {"mask":5} | []
"""
CHANGED = """
"W_q": [[1, 2]], "W_k": [[1, 2]] | "W_k": [[1], [1], [1], [1]] | "W_q": 5 | "W_q": "x" | "W_q": [[1, "x", 0, 0]]
"W_q": [[null, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] | "W_q": [[[[1]]]] | "heads": "x" | "heads": 0
"b_q": [1, 2] | "b_q": [[1, 0], [0, 1]] | "W_o": [[1, 2]] | "b_o": [1], "W_o": [[1, 0], [0, 1], [1, 1], [0, 0]]
"layout": "diagonal" | "score": "best" | "W_q": [[]]
"""
UNEQUAL = [dict.fromkeys(("W_q", "W_k", "W_v"), rows) for rows in ([[1.0]], [[1.0], [2.0]])]
PROJECTIONS = [*(json.loads(f"{{{changed}}}") for changed in apart(CHANGED)), {"heads": UNEQUAL}]
BAD = [
    *(("--mask bad.json", mask.encode()) for mask in apart(MASKS)),
    *(("--mask bad.txt", text.encode("utf-16")) for text in ("", "1 0\n1 1\n")),
    *(("-p bad.json", _weights(**changed)) for changed in PROJECTIONS),
    *(("-e bad.txt", text) for text in (b"a 1e200 1e200\nb 1e200 1e200\n", "a 1 2\n".encode("utf-16"))),
]


@pytest.mark.parametrize(("option", "content"), BAD)
def test_a_bad_file_is_65_and_one_line(option, content, at):
    option, name = option.split()
    Path(name).write_bytes(content)
    args = ("self", "a b", option, name, *(() if option == "-e" else ("-e", "random")))
    said = refused(here(*args, "--mask-true", "allowed"), 65)
    assert name in said or option == "-p" or b"e200" in content
    refused_as_json(here(*args, "--mask-true", "allowed", "-f", "json", "--steps"), 65)


@takes_long
def test_no_value_of_any_key_of_a_projection_file_is_a_bug(at):
    (keys,) = typed(
        "Q X W_q W_v W_o context b_k b_o heads layout tokens score mask position_scores about q schema projection "
        "query_tokens temperature kind"
    )
    values = [None, True, 0, -1.5, 10**400, "x", "causal", [], [[]], {}, [1], [[1]], [[[1]]], [[1, 2], [3]]]
    values += [[1, [2]], ["a"], [["a"]], [[None]], [{}], [[{}]], [[[[1]]]]]
    weights = {"W_q": BODY, "W_k": BODY, "W_v": BODY}
    for n, key in enumerate(keys):
        for value in values[n % 2 :: 2]:  # half of them for each key: all would take long
            own = {"schema": "attn/1", "heads": [weights | {key: value}], "projection": {"layout": "in-out"}}
            for record in (weights | {key: value}, own | ({} if key == "heads" else {key: value})):
                Path("p.json").write_text(json.dumps(record))
                ran = here("self", "a b", "-e", "random", "-p", "p.json", "-f", "csv")
                assert ran.code in (0, 2, 65), (key, value, ran)


@pytest.mark.parametrize("names", ["W_q", "W_v", "W_o", "b_k", "W_q W_k"])
def test_a_computation_that_overflows_is_65_and_one_line(names, at):
    huge = [[1e308] * 4] * 4
    Path("p.json").write_bytes(_weights(**{n: huge[0] if n == "b_k" else huge for n in names.split()}))
    Path("v.txt").write_text("a 10 10 10 10\nb 9 9 9 9\n")
    refused(attn("self", "a b", "-e", "v.txt", "-p", "p.json"), 65)
    refused_as_json(here("self", "a b", "-e", "v.txt", "-p", "p.json", "-f", "json", "--steps"), 65)


TABLES = {  # the vectors, and the words, of a table that is none
    "one-word-short": (np.eye(2), b"a"),
    "no-rows": (np.zeros((0, 2)), b""),
    "no-columns": (np.zeros((2, 0)), b"a\nb"),
    "nan": (np.full((2, 2), np.nan), b"a\nb"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table_of_vectors_is_65_or_read_without_the_bad_note_but_never_a_bug(name, at):
    vectors, words = TABLES[name]
    with Path("t.safetensors").open("wb") as stream:
        write_safetensors(stream, {"vectors": vectors, "words": np.array([*words], np.uint8)}, ABOUT)
    for args in typed(
        "self 'a b q' -e T | vectors info T | vectors nearest a -e T".replace("T", "t.safetensors")
    ):
        ran = here(*args)
        if ran.code:
            refused(ran, 65)
        assert "nan" not in ran.out


@linux
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_process_that_the_system_has_no_room_for_is_71(number, at, monkeypatch):
    def fork() -> int:
        raise OSError(number, os.strerror(number))

    Path("lines.txt").write_text("a b\n" * 2000)  # too few are not shared out
    monkeypatch.setattr(os, "fork", fork)
    error = refused_as_json(here("batch", "lines.txt", "-e", "random", "--workers", "2"), 71)
    assert "not enough memory" in error["message"]


@pytest.mark.parametrize("option", ["-e", "-p", "--mask"])
def test_what_is_not_a_readable_regular_file_is_66_at_once(option, at):
    os.mkfifo("pipe.txt")
    Path("folder.txt").mkdir()
    says = {"missing.txt": "No such file", "./missing": "No such file", "folder.txt": "directory"}
    says |= {"pipe.txt": "regular", "/dev/zero": "regular", "n" * 300 + ".txt": "too long"}
    says |= dict.fromkeys(("https://example.org/v.txt", "s3://bucket/v.txt"), "local files only")
    for value, said in says.items():
        refused(here("self", "a b", option, value, "--mask-true", "allowed"), 66, said)
    refused(attn("self", "a b", option, "pipe.txt", "--mask-true", "allowed", timeout=30), 66)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_a_file_without_permission_is_66_or_73_and_left_alone(at):
    Path("v.txt").write_text("a 1 2\n")
    os.chmod("v.txt", 0)
    refused(attn("self", "a", "-e", "v.txt"), 66, "ermission")
    Path("out.txt").write_text("mine")
    os.chmod("out.txt", 0o444)
    refused(attn("self", "a b", "-o", "out.txt"), 73)
    assert Path("out.txt").read_text() == "mine"


@linux
def test_an_output_that_cannot_be_created_is_73(at):
    Path("folder.txt").mkdir()
    for value in ("nowhere/out.txt", "folder.txt", "/proc/out.txt", "n" * 300 + ".txt", "text\udcff/out.txt"):
        refused(attn("self", "a b", "-o", os.fsencode(value)), 73)
    Path("text.txt").write_text("a b c\n")
    refused(attn("vectors", "train", "text.txt", "-o", "nowhere/x.safetensors"), 73)
    assert sorted(p.name for p in at.iterdir()) == ["folder.txt", "text.txt"]


SHOWN = (
    "--version | --help | self --help | schema | self x | explain x | self x -f csv | example | vectors info"
)


@linux
@pytest.mark.parametrize("command", apart(f"{SHOWN} | vectors nearest the | --show-completion bash"))
@like_cases
def test_a_full_or_closed_standard_output_is_74(command):
    refused(shell(f"attn {command} > /dev/full"), 74)
    refused(shell(f"attn {command} >&-"), 74)
    if command == "--version":
        refused(attn("self", "x", "-o", "/dev/full"), 74, "/dev/full")
        for out in ("-o /dev/full", "> /dev/full", ">&-"):
            refused_as_json(shell(f"attn self x -f json {out}"), 74)


BAD_VARIABLES = """
KEEP_PUNCTUATION=maybe => boolean. Give 1 or 0. Change or unset ATTN_KEEP_PUNCTUATION. | DPI=29 | SIZE=8 | FIGURE=lnks
DIM=wide => 'wide' is not a valid int. Change or unset ATTN_DIM. | SCORE=dto => Did you mean dot? Change or unset
TOKENIZER=bpe | KEEP_PUNCTUATION=perhaps | EMBEDDING=bogus | DIM=0 | DIM=wide | SEED=-1 | OOV=guess | HEADS=7
PROJECTION=bogus | HEAD=77 | LAYER=1 | LAYER=first | OOV=models | LAYOUT=sideways | SCORE=best | MASK=diagonal
TEMPERATURE=0 | TEMPERATURE=nan | MASK_TRUE=perhaps | QUERY=zebra | TOP=0 | FULL=perhaps | FORMAT=pdf | TIDY=perhaps
STEPS=perhaps | FIELDS=wieghts => Did you mean weights? | PRECISION=99 | COLOR=red | PALETTE=jet | WIDTH=3
"""


@pytest.mark.parametrize(("set_to", "said"), told(BAD_VARIABLES))
def test_a_bad_variable_is_78_and_named(set_to, said):
    name, _, value = set_to[0].partition("=")
    refused(here("self", "the cat", env={f"ATTN_{name}": value}), 78, f"ATTN_{name}", said)


def test_a_flag_beats_a_bad_variable_and_a_variable_counts_for_a_result_and_an_error_alike(at):
    env = {"ATTN_SEED": "-1", "ATTN_TEMPERATURE": "0", "ATTN_QUERY": "zebra"}
    assert here("self", "a b", "--seed", "1", "-t", "1", "-q", "a", env=env).code == 0
    refused(here("self", "a b", "--seed", "-2", "-t", "1", "-qa", env=env), 2, "--seed")
    refused(here("self", "a b", "--seed=1", "-t0", "-q", "a", env=env), 2, "--temperature")
    refused(here("self", "--", "-tail", env={"ATTN_TEMPERATURE": "0"}), 78, "ATTN_TEMPERATURE")
    assert here("self", "x", env={"ATTN_SEED": "", "ATTN_FORMAT": "", "ATTN_WIDTH": ""}).code == 0
    of_models = dict.fromkeys(("ATTN_JOIN_PIECES", "ATTN_HIDE_SPECIAL", "ATTN_RENORMALIZE"), "1")
    for command in ("self", "masked", "explain"):  # they wait for a model
        assert here(command, "a b", "-e", "random", env=of_models).code == 0
    env = {"ATTN_FORMAT": "json"}
    for args in (["self", "a b"], ["example"], ["vectors", "info"], ["vectors", "nearest", "the"]):
        shown, failed = here(*args, env=env), here(*args, "--bogus", env=env)
        assert shown.code == 0 and failed.code == 2
        assert shown.out.startswith("{") == failed.err.startswith("{"), args
    for name, is_json in {"-": True, "": True, "x.json": True, "x.csv": False, "x": False}.items():
        assert here("self", "a b", "-o", name, "--bogus", env=env).err.startswith("{") == is_json, name
    assert here("self", "a b", "-o", "x.csv", env=env).code == 0  # one suffix is one format
    assert Path("x.csv").read_text().startswith("query,")


CHOICES = """
--tokenizer words whitespace characters | -e random word2vec v.txt | --dim 1 3 8 | --heads 1 2 3 | --layer 0 1
--oov model zero random skip error | -p roles identity random p.json | --head 0 1 subject mean all
--layout in-out out-in | --score scaled dot cosine | -t 1e-6 0.5 100 1e300 | -q 0 THE zebra | --width 20 80
--mask none causal causal-bottom-right window:0 window:999999999 m.txt | --mask-true allowed blocked
--top 1 1000000 | -f table bars json jsonl csv tsv markdown | --precision 0 6 17 | --color always never
--keep-punctuation | --full | --tidy | --steps
"""
TEXTS = apart("the cat sat on the mat | a | a b | Don't e-mail 3.14! | 😀 👩‍👩‍👧 🇬🇧 | the the | zzxq qqzz")
TEXTS += ["x" * 200]


@takes_long
def test_any_mix_of_options_ends_with_a_result_or_with_one_line(at):
    Path("v.txt").write_text("the 1 2 3 4\ncat 0 0 0 0\na 4 3 2 1\n")
    Path("m.txt").write_text("1 0\n1 1\n")
    Path("p.json").write_bytes(_weights(W_o=BODY, b_q=[1, 2, 3, 4]))
    draw = random.Random(0)
    codes = set()
    for _ in range(often(400)):
        command = draw.choice(["self", "masked", "cross", "explain", "example"])
        texts = ["coffee"] if command == "example" else draw.sample(TEXTS, 2 if command == "cross" else 1)
        chosen = draw.sample(typed(CHOICES), draw.randint(0, 7))
        options = [part for name, *values in chosen for part in (name, *draw.sample(values, bool(values)))]
        ran = here(command, *texts, *options)
        codes.add(ran.code)
        assert bool(ran.out) == (ran.code == 0) and (ran.out or ran.err.count("\n") == 1), options
        assert ran.code or not {"json", "jsonl"} & {*options} or json.loads(ran.out)["schema"] == "attn/1"
    assert codes == {0, 2, 65}


def test_an_error_ends_like_a_sentence():
    for args in (["self", "x", "--bogus"], ["schema", "please"], ["self", "x", "--top", "many"], ["slef"]):
        message = str(refused_as_json(here(*args, "-f", "json"), 2)["message"])
        assert message[0].isupper() and message[-1] in ".?)"
    refused(here("self", "--", "-f", "json"), 2, "put quotes round it")  # text, and no format
    said = f"attn: No such option: --{'y' * 282}...{'y' * 199}. See attn self --help.\n"
    assert here("self", f"--{'y' * 5000}").err == said, "of 600 characters and more, 300 and 200"


# What is suggested: the nearest name, and a command to paste, in which no name is obeyed


MISTYPED = """
slef "a b" => self | Self "a b" => self | vectors neerest => nearest | learn trian => train
--versoin => --version | self "a b" --TEMPERATURE 2 => --temperature | self "a b" --no-tdy => --no-tidy
vectors nearest the --topp 3 => --top | learn train x.conllu --epoch 3 => --epochs
self "a b" -f jsom => json | self "a b" -o weights.jsn => .json | compare "a b" --vary score=scaled,dto => dot
self "a b" --mask windw:2 => window:N | self "a b" -e random --heads 2 --head al => all
self "a b" -e wrd2vec => word2vec | explain "a b" --only tokens,sofmax => softmax
explain "a b" --from quries => queries | example cofee => coffee
compare "a b" --vary scor=scaled,dot => score | compare "a b" --vary head=subject,objct => object
learn score rols x.conllu => roles | vectors info wrd2vec => word2vec
vectors export -o vectors.vc => .vec | config maskd => masked | --show-completion bsh => bash
"""


@pytest.mark.parametrize(("args", "meant"), told(MISTYPED))
def test_a_mistyped_name_is_2_and_the_nearest_is_asked_for(args, meant, at):
    refused(here(*args), 2, f"Did you mean {meant}?")
    assert list(at.iterdir()) == []


VALUES = """
score dto => dot | palette Viridsi => viridis | mask casual => causal | head sbject => subject
embedding wrd2vec => word2vec | projection role => roles
"""


@pytest.mark.parametrize(("names", "meant"), told(VALUES))
def test_a_mistyped_value_of_a_variable_or_of_a_file_is_78_and_asks_too(names, meant, at):
    setting, wrong = names
    asked = f"Did you mean {meant}?"
    refused(here("self", "a b", env={f"ATTN_{setting.upper()}": wrong}), 78, asked)
    Path("attn.toml").write_text(f'{setting} = "{wrong}"\n')
    refused(here("self", "a b"), 78, asked)
    if setting in ("mask", "score"):
        Path("given.json").write_text(f'{{"X": [[1.0, 2.0]], "{setting}": "{wrong}"}}')
        Path("attn.toml").unlink()
        refused(here("compute", "given.json"), 65, asked)


def test_what_is_like_no_known_name_is_not_guessed_and_the_question_names_as_many_as_wanted_inertly():
    for args in typed("zzzz | self a --zzzz | self a --mask zzzz | self a -f zzzz | self 'a b' --head 99"):
        assert "Did you mean" not in here(*args).err
    ran = here("self", "a b", "--mask", "casual", "-f", "json")
    assert ran.code == 2 and '"hint": "Did you mean causal? Masks are' in ran.err
    assert did_you_mean("re", ["re\x1b[31m"]) == ""
    assert did_you_mean("red!", ["red\x1b"]) == "Did you mean 'red\\x1b'? "
    assert did_you_mean("cat", ["cats", "cot", "dog"], 3) == "Did you mean cats or cot? "
    assert did_you_mean("MEAN", ["mean", "all"]) == "Did you mean mean? "


@pytest.mark.parametrize("gone", [name.removeprefix("attn ") for name in MOVED])
def test_what_left_the_program_says_where_it_went(gone):
    ran = here(*gone.split(), "x")
    assert (ran.code, ran.out) == (2, "")
    said = f"attn {gone} has left the program. In a copy of the repository: {MOVED[f'attn {gone}']}\n"
    assert ran.err == f"attn: {said}"


# A command that attn suggests is one to paste: no name in it is obeyed, and bash reads the name back.


NAMES = ["it's $(touch X) `touch X`", "a\x1b[201~\x15 !attn\nb", "\u202e\u3164\u2028", '"\\"']
BYTES = "caf\udce9"  # no UTF-8, as a name of a file may be


def suggested(ran, mark: str, program: str = "attn") -> list[str]:
    """Return the words of the command that stands behind `mark` in the one line of an error or a remark."""
    line = next(line for line in ran.err.splitlines() if mark in line)
    assert visible(line) == line
    command = line.partition(mark)[2].partition(", or ")[0]
    assert command.startswith(f"{program} ")
    (words,) = pasted([command.replace(program, "attn", 1)], locale="C")
    return words


@pytest.mark.parametrize("name", [*NAMES, "-x"])
def test_bare_words(name, at):
    ran = here("self", "--", name, "cat")
    assert suggested(ran, "Try: ")[-1] == f"{name} cat"
    assert here(*suggested(ran, "Try: ")).code == 0


def test_what_has_no_signs_of_a_shell_stays_in_double_quotes(at):
    assert here("self", "the", "cat's", "café").err.endswith('Try: attn self "the cat\'s café"\n')
    Path("model.bin").write_bytes(FASTTEXT)
    assert 'Convert it: python -c "from gensim.models.' in here("self", "she", "-e", "model.bin").err


FASTTEXT = b"\xba\x16\x4f\x2f\x0c\0\0\0" + b"\0" * 50


@pytest.mark.parametrize("name", [*NAMES, BYTES, "-x"])
def test_a_file_to_unpack_or_to_convert(name, at):
    Path(name).write_bytes(b"BZh91AY&SY" + b"\0" * 30)
    file = suggested(here("self", "she", "-e", f"./{name}"), "Unpack it: ", "bunzip2")[-1]
    assert os.path.samefile(file, name)
    assert not file.startswith("-")
    Path(name).write_bytes(FASTTEXT)
    _, code = suggested(here("self", "she", "-e", f"./{name}"), "Convert it: ", "python")
    assert f"./{name}" in [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]


@pytest.mark.parametrize("word", ["-x", "$(id)", "it's!", "a\u202eb"])
def test_a_word_to_try(word, own, at):
    Path("short.txt").write_text(f"{word} 1 2\n")
    ran = here("vectors", "import", "short.txt")
    assert (ran.code, ran.out) == (0, "")
    words = suggested(ran, "try: ")
    assert word in words and here(*words).code == 0


TRIED = "a1b2 cat bird whale => bird | a1 cat => a1 | whale fox king => king"  # a usual word, a long one, the first


@pytest.mark.parametrize(("words", "tried"), told(TRIED))
def test_a_word_to_try_is_one_that_means_something(words, tried, own, at):
    Path("short.txt").write_text("".join(f"{word} {n} 1\n" for n, word in enumerate(words)))
    said = here("vectors", "import", "short.txt").err
    assert said.endswith(f"attn: try: attn vectors nearest {tried} -e short\n")


@pytest.mark.parametrize("name", [*NAMES, BYTES])
def test_a_file_to_write_or_a_model_to_read(name, at):
    ran = here("self", "she", "-f", "json", "-o", f"{name}.svg")
    typed = json.loads(ran.err)["error"]["hint"].partition("Type ")[2].partition(", or ")[0]
    assert pasted([f"attn {typed}"], locale="C") == [["-o", f"{name}.json"]]
    Path(f"{name}.safetensors").symlink_to(data_path("language.safetensors"))
    ran = here("cross", "she", "it", "-p", f"{name}.safetensors")
    assert f"{name}.safetensors" in suggested(ran, "Try ")
    Path("a b.safetensors").symlink_to(data_path("roles.safetensors"))
    assert "attn self TEXT -p './a b.safetensors' " in here("heads", "a cat", "-p", "./a b.safetensors").out
    Path(name).mkdir()
    for file in ("config.json", "model.safetensors"):
        Path(name, file).write_text("{}")
    ran = here("self", "she", "-m", f"{name}/model.safetensors")
    folder = ran.err.rstrip("\n").removesuffix(".").partition("Give its folder: ")[2]
    assert pasted([f"attn {folder}"], locale="C") == [[name]]


@pytest.mark.parametrize("name", NAMES)
def test_a_head_to_show(name):
    trace = trace_self("she likes coffee", Settings(every_head=True))
    last = replace(trace.heads[-1], name=name)
    heads, names = (*trace.heads[:-1], last), (*trace.head_names[:-1], name)
    said = next(walk(replace(trace, heads=heads, head_names=names)))
    option = said.text.partition("; ")[2].partition(" shows another")[0]
    assert pasted([f"attn {option}"]) == [["--head", name]]
