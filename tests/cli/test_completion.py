"""Completion: a script for each shell, and the answers that it gets when somebody presses Tab."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attn_cli.cli.app import COMMANDS
from tests.shell import COMMAND, attn, here, refused, surroundings
from tests.thorough import takes_long


def blocked(folder: Path, *modules: str) -> dict[str, str]:
    """Return an environment in which importing those modules fails loudly."""
    for module in modules:
        (folder / module).mkdir(parents=True)
        (folder / module / "__init__.py").write_text(f"raise SystemError('{module} was imported')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


def completed(line: str, env: dict[str, str] | None = None) -> list[str]:
    typed = shlex.split(line) if not line.endswith(" ") else [*shlex.split(line), ""]
    asked = {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(typed) - 1)}
    ran = (attn if env and "PYTHONPATH" in env else here)(env=asked | (env or {}))
    assert (ran.code, ran.err) == (0, "")
    return ran.out.split()


CHECKS = {"bash": "bash -n", "zsh": "zsh -n", "fish": "fish --no-execute", "powershell": "pwsh -?"}


@pytest.mark.parametrize("shell", CHECKS)
def test_each_shell_has_a_script_that_asks_attn_and_is_sound(shell, tmp_path):
    ran = attn("--show-completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert "attn" in ran.out and "_ATTN_COMPLETE" in ran.out and f"complete_{shell}" in ran.out
    assert ran.out.endswith("\n") and "\x1b" not in ran.out
    if shell != "powershell" and shutil.which(shell):
        (tmp_path / "script").write_text(ran.out)
        check = [*CHECKS[shell].split(), str(tmp_path / "script")]
        done = subprocess.run(check, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


OFFERED = {  # of a line, and what is offered for its last word
    "attn se": "self", "attn vectors n": "nearest", "attn learn ": "score train", "attn zz": "",
    "attn self --mas": "--mask --mask-true", "attn explain --c": "--color --context", "attn self -f j": "json jsonl",
    "attn self --score ": "cosine dot scaled", "attn self -p r": "random roles roles-deep",
    "attn self --head su": "subject", "attn self --la": "--layer --layout", "attn vectors nearest --to": "--top",
}  # fmt: skip


def test_commands_options_and_values_are_completed_with_their_help_and_nothing_is_computed_for_it(tmp_path):
    for line, offered in OFFERED.items():
        assert sorted(completed(line)) == offered.split(), line
    assert set(completed("attn ")) >= {*COMMANDS}
    assert set(completed("attn vectors ")) >= {"info", "import", "nearest", "train"}
    assert "--version" in completed("attn --v")
    env = blocked(tmp_path, "numpy", "gensim", "pydantic")
    for line in ("attn se", "attn self --mas", "attn vectors n", "attn self --score "):
        assert sorted(completed(line, env)) == OFFERED[line].split(), line
    assert completed("attn self 'the cat' --oov z", env) == ["zero"]
    asked = {"_ATTN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    offered = here(env={**asked, "_TYPER_COMPLETE_ARGS": "attn self --"}).out.splitlines()
    assert len(offered) > 50 and all(line.startswith("--") and "\t" in line for line in offered)
    assert completed("attn se", {"ATTN_SEED": "x", "ATTN_FORMAT": "pdf"}) == ["self"]
    # Of what zsh is given, one word between apostrophes, the apostrophes stay.
    asked = {"_ATTN_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "attn self --"}
    command, words = shlex.split(here(env=asked).out)
    assert command == "_arguments" and "only this token's rows" in words.lower()


PROMPT = "ready> "
STARTED = {  # how a shell starts, and the profile that its user had before
    "bash": (["bash", "-i"], ".bashrc", f"PS1='{PROMPT}'"),
    "zsh": (["zsh", "-i"], ".zshrc", f"PS1='{PROMPT}'"),
    "fish": (["fish", "-i"], ".config/fish/config.fish", f"function fish_prompt; echo -n '{PROMPT}'; end"),
}
ADDED = {  # what is typed before Tab is pressed, and what it adds
    "attn expl": "ain", "attn vectors ne": "arest", "attn self 'A cat' --pal": "ette",
    "attn self --head subj": "ect", "attn self -f code:nu": "mpy", "attn self --mask=causal-": "bottom-right",
    "attn compute own-m": "atrices.json",
}  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(one, marks=takes_long) for one in ("zsh", "fish"))])
@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")
def test_a_shell_completes_what_is_typed_once_it_is_installed(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "attn").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (tmp_path / "bin" / "attn").chmod(0o755)
    (tmp_path / "own-matrices.json").touch()
    start, profile, before = STARTED[shell]
    (tmp_path / profile).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / profile).write_text(f"{before}\n")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": f"{tmp_path}/.config", "TERM": "dumb"}
    home["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    assert attn("--install-completion", shell, env=home).code == 0
    import pexpect

    options = {"env": surroundings(home), "cwd": tmp_path, "encoding": "utf-8", "timeout": 30}
    opened = pexpect.spawn(start[0], start[1:], **options)
    for typed, added in ADDED.items():
        opened.expect_exact(PROMPT)
        opened.send(f"{typed}\t")
        opened.expect_exact(added)
        opened.send("\x01printf '<%s>' \x05 end\r")  # before the line and after it: its words are printed
        opened.expect(r"<attn>.*<end>")
        assert opened.after == "".join(f"<{word}>" for word in [*shlex.split(typed + added), "end"])
    opened.close(force=True)


def test_installing_keeps_every_byte_of_a_profile_follows_its_link_and_says_where_it_wrote(at):
    for folder in ("a home", "dotfiles"):
        Path(folder).mkdir()
    real, profile = Path("dotfiles/bashrc"), Path("a home/.bashrc")
    real.write_bytes(b"# caf\xe9\nexport A=1")
    real.chmod(0o640)
    profile.symlink_to(real.absolute())
    written = []
    for _ in range(2):
        ran = attn("--install-completion", "bash", env={"HOME": str(at / "a home")})
        assert ran.code == 0 and str(at / "a home") in ran.out
        written.append([path for path in at.rglob("*") if path.is_file()])
    assert written[0] == written[1] and any(b"_ATTN_COMPLETE" in path.read_bytes() for path in written[0])
    lines = real.read_bytes().split(b"\n")
    assert lines[:2] == [b"# caf\xe9", b"export A=1"] and len(lines) == 4
    assert lines[2] == f"source '{at}/a home/.bash_completions/attn.sh'".encode() and profile.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    (at / "none").write_text("not a folder")
    assert "bug" not in refused("--install-completion", "bash", code=73, env={"HOME": str(at / "none")})


def test_a_script_stands_where_its_shell_looks_and_once_however_often_it_is_installed(at):
    places = {"zsh": ".zfunc/_attn", "fish": "config/fish/completions/attn.fish", "pwsh": "docs/profile.ps1"}
    home = {"HOME": str(at), "ZDOTDIR": str(at / "dots"), "XDG_CONFIG_HOME": str(at / "config")}
    home["PATH"] = f"{at}:{os.environ['PATH']}"
    (at / "dots").mkdir()
    (profile := at / "dots/.zshrc").write_text("zstyle mine")
    (at / "pwsh").write_text('#!/bin/sh\necho "$HOME/docs/profile.ps1"\n')
    (at / "pwsh").chmod(0o755)
    for shell, place in places.items():
        said = f"Completion for {shell} is installed in {at / place}; open a new shell to use it.\n"
        for _ in range(2):
            assert attn("--install-completion", shell, env=home) == (0, said, "")
        assert (at / place).read_text() == attn("--show-completion", shell).out
    assert attn("--show-completion", "zsh").out.count("_attn_completion") > 2
    assert "funcstack" not in attn("--show-completion", "fish").out
    setup = "fpath+=~/.zfunc; autoload -Uz compinit; compinit"
    assert profile.read_text() == f"zstyle mine\n{setup}\n"
    style = "zstyle ':completion:*' menu select\n"
    both = f"{setup}\n{style}"
    cases = {f"  {setup} \n": style, "": both, f"# {setup}\n": both, f"{setup}; a\n": both}
    for before, added in cases.items():
        profile.write_text(before)
        assert attn("--install-completion", "zsh", env=home).code == 0
        assert profile.read_text() == before + added
    empty = home | {"ZDOTDIR": "", "XDG_CONFIG_HOME": ""}
    for shell, place in (("zsh", ".zshrc"), ("fish", ".config/fish/completions/attn.fish")):
        assert attn("--install-completion", shell, env=empty).code == 0 and (at / place).exists()
    (at / "pwsh").write_text("#!/bin/sh\nexit 3\n")
    said = refused("--install-completion", "pwsh", code=73, env=home)
    assert "pwsh does not say where its profile is: " in said
