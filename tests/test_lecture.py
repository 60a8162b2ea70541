"""The recorded lecture is what its script types, and its picture shows the recording, and moves without a script."""

import re
import xml.etree.ElementTree as ET

from tests import lecture

CAST = lecture.CAST.read_text(encoding="utf-8")
PICTURE = lecture.PICTURE.read_text(encoding="utf-8")


def test_the_recording_types_the_commands_of_the_script() -> None:
    commands = re.findall(r"^\$ (.*)$", lecture.SCRIPT.read_text(encoding="utf-8"), re.M)
    first_lines = [
        "".join(run.text for run in rows[0]) for _, rows in lecture.screens(lecture.events_of(CAST))
    ]
    for command in commands:
        assert f"${command}"[: lecture.COLUMNS - 1] in first_lines


def test_the_picture_is_drawn_from_the_recording() -> None:
    assert lecture.drawn(CAST) == PICTURE, "Run: python -m tests.lecture --write"


def test_the_picture_is_small_loads_nothing_and_stands_still_where_motion_is_unwelcome() -> None:
    assert len(PICTURE) < 300_000
    assert not re.search(r"<script|href|url\(|@import|\son\w+=", PICTURE)
    style, _, moving = PICTURE.partition("@media (prefers-reduced-motion:no-preference){")
    assert "animation" not in style and "@keyframes" in moving
    shown = [one for one in ET.fromstring(PICTURE).iter() if one.get("class", "").endswith(" s")]
    assert "looks most at" in "".join(text for one in shown for text in one.itertext())


def test_each_moment_of_the_picture_shows_the_screen_of_that_moment() -> None:
    events = lecture.events_of(CAST)
    rows = list(lecture.spans(events))
    by_time = dict(lecture.screens(events))  # the last of a moment
    for at, screen in list(by_time.items())[:-1]:
        seen = {one.row: one.runs for one in rows if one.start <= at < one.stop}
        assert seen == {n: runs for n, runs in enumerate(screen) if runs}


def test_a_cell_keeps_its_colours_and_its_place() -> None:
    cast = lecture.written(
        [(0.0, "ab \x1b[1;31mc<\x1b[0m \x1b[7md\x1b[0m \x1b[48;2;1;2;3m  \x1b[0m"), (1.0, "")]
    )
    (_, screen), *_ = lecture.screens(lecture.events_of(cast))
    plain, red = (lecture.INK, lecture.PAPER, False), (lecture.COLOURS["red"], lecture.PAPER, True)
    reverse, filled = (lecture.PAPER, lecture.INK, False), (lecture.INK, "#010203", False)
    runs = ((0, "ab", plain), (3, "c<", red), (6, "d", reverse), (8, "  ", filled))
    assert screen[0] == tuple(lecture.Run(*one) for one in runs)
    assert "c&lt;</text>" in lecture.run_drawn(screen[0][1], 0, {})
