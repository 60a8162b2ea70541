"""Completion: a script for each shell, and the answers that it gets when somebody presses Tab."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shell import COMMAND, Ran, attn, here, surroundings

SHELLS = ("bash", "zsh", "fish", "powershell")


def blocked(folder: Path, *modules: str) -> dict[str, str]:
    """Return an environment in which importing those modules fails loudly."""
    for module in modules:
        (folder / module).mkdir(parents=True)
        (folder / module / "__init__.py").write_text(f"raise SystemError('{module} was imported')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


def completed(line: str, env: dict[str, str] | None = None) -> list[str]:
    ran = _asked(line, env or {})
    assert (ran.code, ran.err) == (0, "")
    return ran.out.split()


def _asked(line: str, env: dict[str, str]) -> Ran:
    typed = shlex.split(line) if not line.endswith(" ") else [*shlex.split(line), ""]
    asked = {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(typed) - 1)}
    return attn(env=asked | env) if "PYTHONPATH" in env else here(env=asked | env)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_asks_attn(shell):
    ran = attn("--show-completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert "attn" in ran.out and "_ATTN_COMPLETE" in ran.out and f"complete_{shell}" in ran.out
    assert ran.out.endswith("\n") and "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", "bash -n"), ("zsh", "zsh -n"), ("fish", "fish --no-execute")]
)
def test_the_script_is_sound_in_its_own_shell(shell, check, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(attn("--show-completion", shell).out)
    done = subprocess.run([*check.split(), str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


OFFERED = {  # of a line, and what is offered for its last word
    "attn se": "self", "attn vectors n": "nearest", "attn learn ": "score train", "attn zz": "",
    "attn self --mas": "--mask --mask-true", "attn explain --c": "--color --context", "attn self -f j": "json jsonl",
    "attn self --score ": "cosine dot scaled", "attn self -p r": "random roles roles-deep",
    "attn self --head su": "subject", "attn self --la": "--layer --layout", "attn vectors nearest --to": "--top",
}  # fmt: skip


def test_commands_options_and_their_values_are_completed():
    for line, offered in OFFERED.items():
        assert sorted(completed(line)) == offered.split(), line
    commands = {"explain", "self", "masked", "cross", "lookup", "example", "vectors", "learn", "schema"}
    assert set(completed("attn ")) >= commands
    assert set(completed("attn vectors ")) >= {"info", "nearest", "train"}
    assert "--version" in completed("attn --v")


def test_pressing_tab_computes_nothing(tmp_path):
    env = blocked(tmp_path, "numpy", "gensim", "pydantic")
    assert completed("attn se", env) == ["self"]
    assert "--temperature" in completed("attn self --te", env)
    assert completed("attn self 'the cat' --oov z", env) == ["zero"]
    assert completed("attn vectors i", env) == ["info", "import"]


def test_a_bad_variable_does_not_break_completion():
    assert completed("attn se", {"ATTN_SEED": "x", "ATTN_FORMAT": "pdf"}) == ["self"]


def test_bash_completes_a_line_with_the_script_itself(tmp_path):
    command = tmp_path / "attn"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    (tmp_path / "script").write_text(attn("--show-completion", "bash").out)
    press = (
        f"PATH={shlex.quote(str(tmp_path))}:$PATH; source {shlex.quote(str(tmp_path / 'script'))};"
        "COMP_WORDS=(attn masked --pal); COMP_CWORD=2;"
        "$(complete -p attn | sed 's/.*-F \\([^ ]*\\).*/\\1/') attn; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", press], capture_output=True, text=True, env=surroundings())
    assert (done.stdout, done.stderr) == ("--palette\n", "")


def test_installing_writes_only_below_home_and_says_where(tmp_path):
    ran = attn("--install-completion", "bash", env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert ran.code == 0 and str(tmp_path) in ran.out
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_ATTN_COMPLETE" in path.read_text() for path in written)
    again = attn("--install-completion", "bash", env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert again.code == 0 and [path for path in tmp_path.rglob("*") if path.is_file()] == written


def test_installing_where_nothing_can_be_written_is_73(tmp_path):
    (tmp_path / "home").write_text("not a folder")
    ran = attn("--install-completion", "bash", env={"HOME": str(tmp_path / "home")})
    assert ran.code == 73 and ran.err.count("\n") == 1 and "bug" not in ran.err
