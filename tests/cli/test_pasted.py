"""A command that attn suggests is one to paste: no name in it is obeyed, and bash reads the name back."""

import ast
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from attn_cli.errors import visible
from attn_cli.io.files import data_path
from attn_cli.pipeline.sources.text import trace_self
from attn_cli.render.views.steps import walk
from attn_cli.settings.settings import Settings
from tests.shell import here, pasted

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


@pytest.mark.parametrize("name", [*NAMES, BYTES])
def test_a_file_to_write_or_a_model_to_read(name, at):
    ran = here("self", "she", "-f", "json", "-o", f"{name}.svg")
    typed = json.loads(ran.err)["error"]["hint"].partition("Type ")[2].partition(", or ")[0]
    assert pasted([f"attn {typed}"], locale="C") == [["-o", f"{name}.json"]]
    Path(f"{name}.safetensors").symlink_to(data_path("language.safetensors"))
    ran = here("cross", "she", "it", "-p", f"{name}.safetensors")
    assert f"{name}.safetensors" in suggested(ran, "Try ")
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
    said = next(
        walk(replace(trace, heads=(*trace.heads[:-1], last), head_names=(*trace.head_names[:-1], name)))
    )
    option = said.text.partition("; ")[2].partition(" shows another")[0]
    assert pasted([f"attn {option}"]) == [["--head", name]]
