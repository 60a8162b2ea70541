"""attn live as a guest: `python -m tests.live.guests [--times 200] [--seed N]`.

The real program on a terminal is brought into a random state, at a random size that changes while it runs, and ended
by a key, by TERM, HUP or INT. Each time the terminal must be as before: how it is set, the cursor, the first screen,
the mouse, every mode; the exit code must be the contract's, and nothing may be said of a bug.
"""

import argparse
import os
import random
import signal
import sys
import tempfile

from tests.live.test_guest import FOX, left, ready
from tests.stage import Stage

SIZES = ((80, 24), (40, 12), (120, 40), (100, 30))
ARROWS = ("\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[6~", "\x1b[H", "\x1b[F")
KEYS = (*"mhHls+-xvddDbuc?twq", "\r", "\x1b", "\t", "cat", *ARROWS)
ENDS = {"q": 0, "\x03": 130, "TERM": 143, "HUP": 129, "INT": 130}


def once(draw: random.Random, number: int) -> list[str]:
    end = list(ENDS)[number % len(ENDS)]
    keys = [key for key in draw.choices(KEYS, k=draw.randrange(6)) if key != "q"]
    with Stage("live", FOX, columns=80, rows=24) as stage:
        stage.resize(*draw.choice(SIZES))
        stage.wait_for(ready)
        for key in keys:
            stage.press(key)
            if draw.random() < 0.3:
                stage.resize(*draw.choice(SIZES))
        stage.read(draw.choice((0.0, 0.0, 0.05, 0.3)))
        if end == "q":
            for _ in range(2):  # the terminal's Esc is told from a key's first byte by time
                stage.press("\x1b")
                while stage.read(0.3):
                    pass
        if end in ("q", "\x03"):
            stage.press(end)
        else:
            os.kill(stage.run.pid, getattr(signal, f"SIG{end}"))
        code = stage.code()
        on, state = left(stage)
        wrong = {
            f"exit code {code}, not {ENDS[end]}": code != ENDS[end],
            f"modes that are still on: {on}": bool(on),
            "no cursor, no first screen or no wrap": not state[25] or state[1049] or not state.get(7, True),
            "the terminal is set otherwise": stage.modes() != stage.before,
            "a bug was told": b"bug" in stage.shown or b"Traceback" in stage.shown,
        }
    return [f"{number} ({end!r} after {keys}): {one}" for one, is_so in wrong.items() if is_so]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.guests", description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = 0
    os.chdir(tempfile.mkdtemp())  # views are saved there
    for number in range(asked.times):
        wrong = once(random.Random(f"{asked.seed} {number}"), number)
        found += len(wrong)
        print("\n".join(wrong) or f"{number} fine", flush=True)
    print(f"{asked.times} runs, {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
