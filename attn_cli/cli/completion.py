"""Tab completion: the script of a shell, and its installation in the user's profile."""

from __future__ import annotations

import os
import shlex
from typing import Any

from attn_cli.errors import CreateError, UsageError, did_you_mean, visible
from attn_cli.io import atomic, files

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
STYLE = b"zstyle"  # added only where the user has none
ZSH_SETUP = (b"fpath+=~/.zfunc; autoload -Uz compinit; compinit", STYLE + b" ':completion:*' menu select")

ZSH_FIRST = """\
[[ "$funcstack[1]" != _attn ]] || _attn_completion "$@" # the first Tab of a shell loads this file
"""
BASH = """\
_attn_completion() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" breaks="${COMP_WORDBREAKS//[^:=]/}" word cut=
    COMPREPLY=( $( env _TYPER_COMPLETE_ARGS="$line" _ATTN_COMPLETE=complete_bash "$1" ) )
    word="${line##*[[:space:]]}"
    [ -z "$breaks" ] || cut="${word%"${word##*["$breaks"]}"}" # bash completes what follows : and = alone
    COMPREPLY=( "${COMPREPLY[@]#"$cut"}" )
}
complete -o default -F _attn_completion attn
"""


def take_questions() -> None:
    """Register what answers the shells: Typer's classes, but help comes as it is written, and --mask=ca is one word."""
    from typer import _completion_classes as of_typer  # it has no public name
    from typer._click.shell_completion import add_completion_class

    def whole(of: Any) -> Any:
        class Whole(of):  # type: ignore[misc]
            def get_completion_args(self) -> Any:
                # The script of bash sets it, too, unless an older attn installed that.
                has_line = "_TYPER_COMPLETE_ARGS" in os.environ
                return (of_typer.ZshComplete if has_line else of).get_completion_args(self)

            def get_completions(self, args: list[str], incomplete: str) -> Any:
                option, equals, _ = incomplete.partition("=")
                found = super().get_completions(args, incomplete)
                for item in found if equals and option.startswith("--") else ():
                    item.value = f"{option}={item.value}"
                return found

        return Whole

    of_typer.completion_init()
    # Typer's loads Rich, which breaks long help into lines, each an offer to fish. Its apostrophes end zsh's quotes.
    of_typer._sanitize_help_text = lambda text: text.replace("''", r"'\''")
    for of in (of_typer.BashComplete, of_typer.ZshComplete, of_typer.FishComplete):
        add_completion_class(whole(of), of.name)


def script(shell: str) -> str:
    """Return the completion script of a shell; UsageError for one that has none."""
    # Typer has no public name for it; the dependency is pinned below the next minor version.
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        hint = f"{did_you_mean(shell, SHELLS)}Shells: {', '.join(SHELLS)}."
        raise UsageError(f"There is no completion for {visible(shell)!r}.", hint)
    if shell == "bash":
        return BASH
    code = get_completion_script(prog_name="attn", complete_var="_ATTN_COMPLETE", shell=shell) + "\n"
    return code + ZSH_FIRST * (shell == "zsh")


def install(shell: str) -> str:
    """Install completion for a shell, and return the line that says which file holds it.

    The script is written first, and what loads it is added to the user's profile last: byte for byte what it was,
    and one line more. Each file holds all or nothing. Raises CreateError or WriteError.
    """
    code = script(shell).encode()
    with files.system_errors(CreateError, "Cannot install completion", "Try --show-completion."):
        if shell == "bash":
            path = _stored("~/.bash_completions/attn.sh", code)
            _add(os.path.expanduser("~/.bashrc"), b"source " + os.fsencode(shlex.quote(path)))
        elif shell == "zsh":
            path = _stored("~/.zfunc/_attn", code)
            _add(os.path.expanduser(f"{os.environ.get('ZDOTDIR') or '~'}/.zshrc"), *ZSH_SETUP)
        elif shell == "fish":
            base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
            path = _stored(f"{base}/fish/completions/attn.fish", code)
        else:
            import subprocess

            command = [shell, "-NoProfile", "-Command", "echo", "$profile"]
            try:
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            except subprocess.CalledProcessError as error:
                raise CreateError(f"{shell} does not say where its profile is: {error}.") from None
            path = found.decode("utf-8", "surrogateescape").strip()
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _add(path, code.rstrip())
    return f"Completion for {shell} is installed in {path}; open a new shell to use it.\n"


def _stored(name: str, code: bytes) -> str:
    path = os.path.expanduser(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with atomic.written(path) as stream:
        stream.write(code)
    return path


def _add(path: str, *lines: bytes) -> None:
    """Add those lines to a file that are not in it; its bytes stay, in whatever encoding."""
    before = b""
    if os.path.lexists(path):
        with open(path, "rb") as file:
            before = file.read()
    there = {one.strip() for one in before.split(b"\n")}

    def is_there(line: bytes) -> bool:  # a script of many lines, too
        return line in (before if b"\n" in line else there) or (line.startswith(STYLE) and STYLE in before)

    if missing := [line for line in lines if not is_there(line)]:
        with atomic.written(path) as stream:
            newline = b"" if before.endswith(b"\n") or not before else b"\n"
            stream.write(before + newline + b"".join(line + b"\n" for line in missing))
