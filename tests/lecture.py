"""The recorded lecture: docs/lecture/script.txt replayed on a terminal, as a cast of asciinema and an SVG that moves.

`python -m tests.docs --write` records it anew; nothing in it depends on when or how fast that was.
"""

import json
import re
import shlex
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.live import all_read
from tests.stage import Stage

FOLDER = Path(__file__).parent.parent / "docs" / "lecture"
SCRIPT, CAST, PICTURE = FOLDER / "script.txt", FOLDER / "lecture.cast", FOLDER / "lecture.svg"
COLUMNS, ROWS = 80, 24
PROMPT, CLEAR = "\x1b[1;32m$\x1b[0m ", "\x1b[0m\x1b[2J\x1b[H"
KEYS, LOOKS = {"space": " "}, {"COLORTERM": "truecolor", "COLORFGBG": "15;0", "PAGER": "cat"}
LETTERS, PER_LETTERS, BEFORE_ENTER = 3, 0.12, 0.4  # so many letters at once, and seconds
# Seconds without output after which a screen that waits for a key is complete; seconds for an answer.
QUIET, LONGEST = 0.6, 30.0
Event = tuple[float, str]
CELL, LINE, EDGE = 8.4, 18, 14  # of the picture, in its units
PAPER, INK, RIM = "#16181d", "#d8dbe2", "#5b606b"
COLOURS = {
    "black": "#000000", "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": "#ffffff",
}  # fmt: skip


class Run(NamedTuple):
    """Letters of one look beside each other in a row of the screen."""

    column: int
    text: str
    look: tuple[str, str, bool]  # ink, paper, bold


def record() -> list[Event]:
    events, now, stage = [], 0.0, None
    lines = [line.partition(" ")[::2] for line in SCRIPT.read_text(encoding="utf-8").splitlines()]
    for at, (what, rest) in enumerate(lines):
        if what == "look":
            now += float(rest)
        elif what == "key" and stage:
            stage.press(KEYS.get(rest, rest))
            events.append((now, shown(stage)))
        elif what == "$":
            events.append((now, CLEAR + PROMPT))
            for n in range(0, len(rest), LETTERS):
                now += PER_LETTERS
                events.append((now, rest[n : n + LETTERS]))
            now += BEFORE_ENTER
            stage = Stage(*shlex.split(rest)[1:], columns=COLUMNS, rows=ROWS, env=LOOKS)
            next_steps = (step for step, _ in lines[at + 1 :] if step in ("key", "$"))
            events.append((now, "\r\n" + shown(stage, has_end=next(next_steps, "$") == "$")))
    return [*((round(at, 2), data) for at, data in events), (round(now, 2), "")]


def shown(stage: Stage, has_end: bool = False) -> str:
    """Return what a command writes until it ends, or waits for a key: then its screen stays as it is for a while."""
    before = len(stage.shown)
    if has_end:
        stage.code()
    else:
        all_read(stage, LONGEST, QUIET)
    return stage.shown[before:].decode()


def written(events: list[Event]) -> str:
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "attn: a lecture"}
    lines = [head | {"env": {"TERM": "xterm-256color"}}, *([at, "o", data] for at, data in events)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def events_of(cast: str) -> list[Event]:
    return [(at, data) for at, _, data in map(json.loads, cast.splitlines()[1:])]


def screens(events: list[Event]) -> Iterator[tuple[float, list[tuple[Run, ...]]]]:
    """Yield the screen after each event: its rows as runs, and when that is."""
    import pyte

    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    rows = [()] * ROWS
    for at, data in events:
        stream.feed(data)
        for row in screen.dirty:
            rows[row] = tuple(runs(screen.buffer[row]))
        screen.dirty.clear()
        yield at, [*rows]


def runs(row: Any) -> Iterator[Run]:
    """Yield the runs of a row; blanks on the terminal's own paper are none."""

    def look(n: int) -> tuple[str, str, bool]:
        both = ((row[n].fg.removeprefix("bright"), INK), (row[n].bg.removeprefix("bright"), PAPER))
        is_own = re.compile("[0-9a-f]{6}").fullmatch
        ink, paper = (f"#{name}" if is_own(name) else COLOURS.get(name, usual) for name, usual in both)
        return (paper, ink, row[n].bold) if row[n].reverse else (ink, paper, row[n].bold)

    for one, group in groupby(range(COLUMNS), look):
        columns = [*group]
        text = "".join(row[n].data for n in columns)
        if one[1] == PAPER:
            columns, text = columns[len(text) - len(text.lstrip()) :], text.strip()
        if text:
            yield Run(columns[0], text, one)


def drawn(cast: str) -> str:
    """Return a cast as an SVG whose rows come and go by CSS; where motion is unwelcome the first full screen stays."""
    events = events_of(cast)
    end = events[-1][0]
    still = next(at for at, data in events if len(data) > 200)  # the first command's answer
    names, body, looks = {}, [], {}
    for row, shown, start, stop in spans(events):
        name = names.setdefault((start, stop), f"t{len(names)}")
        stays = " s" if start <= still < stop else ""
        inner = "".join(run_drawn(run, row, looks) for run in shown)
        body.append(f'<g class="{name}{stays}">{inner}</g>')
    rules = [f".{name}{{{style}}}" for style, name in looks.items()]
    frames = [frame(name, start / end, stop / end) for (start, stop), name in names.items()]
    width, height = COLUMNS * CELL + 2 * EDGE, ROWS * LINE + 2 * EDGE
    size = f'width="{width:g}" height="{height:g}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {size}>',
        "<title>A lecture with attn, on a terminal</title>",
        "<style>",
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        "g{visibility:hidden}.s{visibility:visible}",
        *rules,
        "@media (prefers-reduced-motion:no-preference){",
        f"g{{animation:{end:g}s step-end infinite}}",
        *frames,
        "}",
        "</style>",
        f'<rect {size} rx="8" fill="{PAPER}" stroke="{RIM}"/>',
        *body,
        "</svg>\n",
    ])  # fmt: skip


def spans(events: list[Event]) -> Iterator[tuple[int, tuple[Run, ...], float, float]]:
    """Yield each row that has anything on it, with the seconds from when it is so until it changes."""
    since = {}
    for at, rows in screens(events):
        for n, row in enumerate(rows):
            old, start = since.get(n, ((), at))
            if row != old:
                if old and at > start:
                    yield n, old, start, at
                since[n] = row, at
    end = events[-1][0]
    yield from ((n, row, start, end) for n, (row, start) in since.items() if row and end > start)


def frame(name: str, start: float, stop: float) -> str:
    first = "" if start == 0 else "0%{visibility:hidden}"
    last = "" if stop == 1 else f"{stop * 100:.2f}%{{visibility:hidden}}"
    return f".{name}{{animation-name:{name}}}@keyframes {name}{{{first}{start * 100:.2f}%{{visibility:visible}}{last}}}"


def run_drawn(run: Run, row: int, looks: dict[str, str]) -> str:
    ink, paper, bold = run.look
    style = f"fill:{ink}{';font-weight:bold' * bold}"
    name = looks.setdefault(style, f"c{len(looks)}")
    x, y, width = EDGE + run.column * CELL, EDGE + row * LINE, len(run.text) * CELL
    below = f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{LINE}" fill="{paper}"/>' * (paper != PAPER)
    if not run.text.strip():
        return below
    return f'{below}<text class="{name}" x="{x:g}" y="{y + 13}" textLength="{width:g}">{escape(run.text, False)}</text>'


def changed() -> Iterator[tuple[Path, bytes]]:
    old, new = CAST.read_text(encoding="utf-8") if CAST.exists() else "", written(record())
    texts = lambda rows: ["".join(run.text for run in row) for row in rows]  # noqa: E731
    one, other = ([(at, texts(rows)) for at, rows in screens(events_of(cast))] for cast in (old, new))
    cast = old if one == other else new  # colours differ a little between processors
    for path, text in {CAST: cast, PICTURE: drawn(cast)}.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text.encode()
