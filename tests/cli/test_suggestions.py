"""What an error suggests: the nearest name, and a command to paste, in which no name is obeyed."""

import ast
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from attn_cli.cli.report_error import MOVED
from attn_cli.errors import did_you_mean, visible
from attn_cli.io.files import data_path
from attn_cli.pipeline.sources.text import trace_self
from attn_cli.render.views.steps import walk
from attn_cli.settings import Settings
from tests.cli.tables import told, typed
from tests.shell import here, pasted


def asked(ran, code, meant):
    assert (ran.code, ran.out) == (code, "")
    assert f"Did you mean {meant}?" in ran.err
    assert ran.err.count("\n") == 1 and ran.err.count("Did you mean") == 1


MISTYPED = """
slef "a b" => self | Self "a b" => self | vectors neerest => nearest | learn trian => train
--versoin => --version | self "a b" --TEMPERATURE 2 => --temperature | self "a b" --no-tdy => --no-tidy
vectors nearest the --topp 3 => --top | learn train x.conllu --epoch 3 => --epochs
self "a b" --score dto => dot | self "a b" -f jsom => json
self "a b" --mask windw:2 => window:N | self "a b" --head sbject => subject
self "a b" -e random --heads 2 --head al => all
self "a b" -p role => roles | self "a b" -e wrd2vec => word2vec | self "a b" -q aa => a
self "a b" -o weights.jsn => .json | explain "a b" --only tokens,sofmax => softmax
explain "a b" --from quries => queries | example cofee => coffee
compare "a b" --vary scor=scaled,dot => score | compare "a b" --vary head=subject,objct => object
compare "a b" --vary score=scaled,dto => dot
learn score rols x.conllu => roles | vectors info wrd2vec => word2vec
vectors export -o vectors.vc => .vec | config maskd => masked | --show-completion bsh => bash
"""


@pytest.mark.parametrize(("args", "meant"), told(MISTYPED))
def test_a_mistyped_name_is_2_and_the_nearest_is_asked_for(args, meant, at):
    asked(here(*args), 2, meant)
    assert list(at.iterdir()) == []


VALUES = """
score dto => dot | palette Viridsi => viridis | mask casual => causal | head sbject => subject
embedding wrd2vec => word2vec | projection role => roles
"""


@pytest.mark.parametrize(("names", "meant"), told(VALUES))
def test_a_mistyped_value_of_a_variable_or_of_a_file_is_78_and_asks_too(names, meant, at):
    setting, wrong = names
    asked(here("self", "a b", env={f"ATTN_{setting.upper()}": wrong}), 78, meant)
    Path("attn.toml").write_text(f'{setting} = "{wrong}"\n')
    asked(here("self", "a b"), 78, meant)
    if setting in ("mask", "score"):
        Path("given.json").write_text(f'{{"X": [[1.0, 2.0]], "{setting}": "{wrong}"}}')
        Path("attn.toml").unlink()
        asked(here("compute", "given.json"), 65, meant)


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
