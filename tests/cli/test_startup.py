"""Nobody pays for what is not used: what each command may and may not import."""

import re
import subprocess
from importlib.metadata import version

import pytest

from tests.cli.tables import apart, told, typed
from tests.cli.test_completion import blocked
from tests.shell import COMMAND, attn, python, shell, surroundings
from tests.thorough import like_cases

HEAVY = ("gensim", "scipy", "torch", "pydantic", "keras", "pandas", "matplotlib", "textual", "asyncio")
WITHOUT = """
--version => 0 numpy rich | -V => 0 numpy rich | -h => 0 numpy rich | --help => 0 numpy rich
self --help => 0 numpy rich | explain -h => 0 numpy rich | vectors -h => 0 numpy rich | lookup --help => 0 numpy rich
vectors train --help => 0 numpy rich | learn --help => 0 numpy rich | learn train --help => 0 numpy rich
learn score --help => 0 numpy rich
=> 2 numpy | slef => 2 numpy | self --bogus => 2 numpy | self a -f pdf => 2 numpy | vectors near => 2 numpy
"""
OF_RICH = {"rich.console", "rich.table", "rich.markdown", "rich.progress"}
OF_NUMPY = set() if version("numpy").startswith("1.") else {"numpy.ma"}  # NumPy 1 loads it itself
SET = "TZ=Asia/Kathmandu | PYTHONHASHSEED=7 | HOME= | LC_ALL=tr_TR.UTF-8 | HOME=/nowhere"


def imported(*args: str, at_depth: str = r"\s*") -> set[str]:
    """Return the modules that a run imports: all of them, or those that it imports itself."""
    command = [COMMAND[0], "-X", "importtime", *COMMAND[1:], *args]
    done = subprocess.run(command, input="", capture_output=True, text=True, env=surroundings())
    assert done.returncode == 0
    return {*re.findall(rf"^import time:.*\|{at_depth}(\S+)$", done.stderr, re.M)}


@pytest.mark.parametrize(("args", "needless"), told(WITHOUT), ids=str)
@like_cases
def test_help_version_and_wrong_usage_are_told_without_what_they_do_not_need(args, needless, tmp_path):
    code, *modules = needless.split()
    ran = attn(*args, env=blocked(tmp_path, *modules, *HEAVY))
    assert ran.code == int(code) and "attn" in ran.out + ran.err and (ran.err == "") == (code == "0")
    assert "SystemError" not in ran.err and "bug" not in ran.err


def test_the_version_needs_not_even_typer_and_what_computes_nothing_imports_nothing_heavy(tmp_path):
    assert attn("--version", env=blocked(tmp_path / "one", "typer", "click")).code == 0
    env = blocked(tmp_path / "two", *HEAVY)
    for line in ("schema", "--show-completion bash", "example"):
        assert attn(*line.split(), env=env).code == 0
    ran = python("before = set(sys.modules); import attn_cli; print(*sorted(set(sys.modules) - before))")
    assert not {name.partition(".")[0] for name in ran.out.split()} & {"numpy", "typer", "rich", *HEAVY}


@pytest.mark.parametrize("kind", ["self", "explain", "masked"])
def test_numpy_is_not_loaded_deep_in_other_imports_and_json_needs_no_rich(kind, tmp_path):
    assert "numpy" in imported(kind, "the cat sat", at_depth=" ")
    ran = attn(kind, "the cat sat on the mat", "-f", "json", env=blocked(tmp_path, "rich", *HEAVY))
    assert ran.code == 0 and ran.out == attn(kind, "the cat sat on the mat", "-f", "json").out


COMPUTING = """
self "the cat sat" | explain "the cat sat" -q cat | masked "the quick brown fox"
self "the cat sat" -e random --heads 2 -f json | example coffee | vectors nearest cat
self "the cat" -f csv | self "the cat" --color always --width 60
"""


@pytest.mark.parametrize("args", typed(COMPUTING))
@like_cases
def test_attention_loads_no_training_and_no_validation_library_and_no_console_of_rich(args):
    modules = imported(*args)
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & set(HEAVY) and not modules & (OF_RICH | OF_NUMPY)
    assert "numpy" in tops or args[0] == "vectors"


def test_nothing_is_sent_anywhere():
    """No command of today opens a socket: one that tried would stop with a traceback or a bug."""
    guard = """
def look(event, args):
    if event.startswith("socket."): raise SystemError("attn opened a socket")
sys.addaudithook(look)
__import__("runpy").run_module("attn_cli", run_name="__main__")
"""
    lines = "explain she | vectors nearest cat | self x -e https://x.y/z.txt | self x -m org/model"
    for args in typed(lines):
        ran = python(guard, *args)
        assert ran.code in (0, 65, 66) and "socket" not in ran.err


def test_optimized_python_and_warnings_as_errors_give_the_same():
    usual = attn("explain", "she likes coffee").out
    for flags in ("-O", "-X dev -W error"):
        python = f"{COMMAND[0]} {flags}"
        ran = shell(f"{python} -m attn_cli explain 'she likes coffee'")
        assert (ran.code, ran.out, ran.err) == (0, usual, "")


@pytest.mark.parametrize("set_to", apart(SET))
@like_cases
def test_surroundings_change_nothing(set_to):
    args = ["self", "I sat with him", "-e", "random", "-f", "json"]
    name, _, value = set_to.partition("=")
    assert attn(*args, env={name: value or None})[:2] == attn(*args)[:2]
