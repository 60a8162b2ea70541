"""attn live as a guest: `python -m tests.live.guests [--times 200] [--seed N]`, which needs tmux.

The real program in tmux is brought into a random state, at a random size that changes while it runs, and ended by a
key, by TERM, HUP, INT, or by a worker that fails. Each time the terminal must be as before: `stty -a`, the cursor,
the first screen, the mouse, the modes; the exit code must be the contract's, and a failure must be reported.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.shell import ROOT, surroundings

SIZES = ((80, 24), (40, 12), (120, 40), (100, 30))
KEYS = (*"mhHls+-xvddDbuc?", "Enter", "Escape", "Tab")
MOVES = ("Up", "Down", "Left", "Right", "PageDown", "Home", "End", "t", "cat", "w")
ENDS = {"q": 0, "C-c": 130, "TERM": 143, "HUP": 129, "INT": 130, "worker": 70}
LIMIT = 20.0  # seconds
STATE = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{mouse_sgr_flag} #{wrap_flag} #{keypad_flag} #{insert_flag}"
FAILING = """
import sys
import attn_cli.live.sources as sources
compute = sources.TextSource.compute
def failing(self, question):
    if question.settings.temperature > 1e5:
        raise ZeroDivisionError("made to fail")
    return compute(self, question)
sources.TextSource.compute = failing
from attn_cli.live import keys
keys.ACTIONS["usual_heat"] = lambda state, seen: state.setting(temperature=1e6)
from attn_cli.__main__ import run
run()
"""


class Tmux:
    """A tmux server of its own, with a shell in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "socket")
        env = surroundings({"TMUX": None, "LC_ALL": "C.UTF-8", "PS1": "$ ", "HISTFILE": ""})
        command = ["new-session", "-d", "-x", "80", "-y", "24", "bash --norc --noprofile"]
        subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *command], env=env, check=True)
        self.run("set-option", "-g", "window-size", "manual")

    def run(self, *args: str) -> str:
        done = subprocess.run(["tmux", "-S", self.socket, *args], capture_output=True, text=True, check=True)
        return done.stdout

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def line(self, text: str) -> None:
        self.run("send-keys", "-l", text)
        self.press("Enter")

    def shown(self) -> str:
        return self.run("capture-pane", "-p")

    def state(self) -> str:
        return self.run("display-message", "-p", STATE).strip()

    def resize(self, size: tuple[int, int]) -> None:
        self.run("resize-window", "-x", str(size[0]), "-y", str(size[1]))

    def wait(self, path: Path) -> str:
        """Wait for a file with a whole line in it, and return its text."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            with contextlib.suppress(FileNotFoundError):
                if (text := path.read_text()).endswith("\n"):
                    return text
            time.sleep(0.02)
        raise AssertionError(f"{path.name} did not come; on the screen:\n{self.shown()}")

    def close(self) -> None:
        self.run("kill-server")


def modes(tmux: Tmux, name: str) -> str:
    """Return what stty says of the terminal; the size is the user's own business."""
    path = tmux.folder / name
    path.unlink(missing_ok=True)
    tmux.line(f"stty -a > {path}.part; mv {path}.part {path}")
    said = tmux.wait(path)
    return said[said.index(";", said.index("columns")) :]


def once(tmux: Tmux, draw: random.Random, number: int) -> list[str]:
    """Run the program once, end it, and return what is wrong."""
    end = list(ENDS)[number % len(ENDS)]
    tmux.resize(draw.choice(SIZES))
    before, state = modes(tmux, "before"), tmux.state()
    code, errors, pid = (tmux.folder / name for name in ("code", "errors", "pid"))
    for path in (code, errors, pid):
        path.unlink(missing_ok=True)
    program = f"exec {sys.executable} {tmux.folder / 'failing.py'} live"
    tmux.line(f"sh -c 'echo $$ > {pid}; {program}' 2> {errors}; echo $? > {code}")
    process = int(tmux.wait(pid))
    _wait_until(lambda: tmux.state().startswith("1 0") and "quit" in tmux.shown(), tmux)
    keys = draw.choices((*KEYS, *MOVES), k=draw.randrange(6))
    typing = any(key in ("t", "w") for key in keys)
    for key in keys:
        tmux.press(key)
        if draw.random() < 0.3:
            tmux.resize(draw.choice(SIZES))
    time.sleep(draw.choice((0.0, 0.0, 0.05, 0.3)))
    if end in ("q", "worker"):
        tmux.press("Escape")
        time.sleep(0.3 if typing else 0.2)  # the terminal's Esc is told from a key's first byte by time
        tmux.press("Escape")
        time.sleep(0.2)
        tmux.press("q" if end == "q" else "0")
    elif end == "C-c":
        tmux.press("C-c")
    else:
        os.kill(process, getattr(signal, f"SIG{end}"))
    found = []
    got = int(tmux.wait(code))
    if got != ENDS[end]:
        found.append(f"exit code {got}, not {ENDS[end]}: {errors.read_text()[-300:]}")
    said = errors.read_text()
    if ("made to fail" in said) != (end == "worker") or "Traceback" in said:
        found.append(f"standard error: {said[-300:]!r}")
    if (now := tmux.state()) != state:
        found.append(f"the terminal is {now}, and was {state}")
    if (after := modes(tmux, "after")) != before:
        found.append(f"stty: {after} and before {before}")
    return [f"{number} ({end} after {' '.join(keys)}): {one}" for one in found]


def _wait_until(is_so, tmux: Tmux) -> None:
    end = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError("the screen did not come:\n" + tmux.shown())
        time.sleep(0.05)


def campaign(times: int, seed: int) -> list[str]:
    """Run the program so many times, and return what was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "failing.py").write_text(FAILING)
        tmux = Tmux(place)
        tmux.line(f"cd {place}; export PYTHONPATH={ROOT}; clear")
        found = []
        try:
            for number in range(times):
                wrong = once(tmux, random.Random(f"{seed} {number}"), number)
                found += wrong
                print("\n".join(wrong) or f"{number} fine", flush=True)
        finally:
            tmux.close()
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.guests", description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if shutil.which("tmux") is None:
        print("tmux is not installed.")
        return 1
    wrong = campaign(asked.times, asked.seed)
    print(f"{asked.times} runs, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
