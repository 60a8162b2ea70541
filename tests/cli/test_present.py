"""--pause: one part at a time, forward and back, on a terminal that is given back whatever happens."""

import contextlib
import os
import re
import signal
import sys
import termios
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pexpect
import pytest

from attn_cli.cli.present import Presenter
from attn_cli.render import Heading, Say
from attn_cli.settings.output import View
from tests.shell import COMMAND, attn, here, plain, surroundings
from tests.stage import Stage
from tests.thorough import like_cases

TEXT = "she likes coffee"
WALK = ("explain", TEXT, "--from", "tokens", "--pause")
STORY = ("example", "dictionary", "--pause")
ESC = "\x1b"
UP, DOWN, RIGHT, LEFT, HOME, END, PAGE_UP, PAGE_DOWN = (
    ESC + rest for rest in ("[A", "[B", "[C", "[D", "[H", "[F", "[5~", "[6~")
)
FIRST_SCREEN_AGAIN = b"\x1b[?25h\x1b[?1049l"


def part(number, stage):
    return f"part {number} of {stage.count()}"


@contextlib.contextmanager
def shown(*args, **options):
    with Stage(*args, **options) as stage:
        stage.wait_for(part(1, stage))
        yield stage


STORY_KEYS = [  # what is pressed one after the other, and the part that is shown then; None is the last
    *((" ", 2), ("b", 1), ("\r", 2), ("\x7f", 1), ("n", 2), ("p", 1)),
    *((RIGHT, 2), (LEFT, 1), (PAGE_DOWN, 2), (PAGE_UP, 1), (ESC + "OC", 2), (ESC + "OD", 1)),
    *((ESC + "[1;5C", 2), (ESC + "[1;2D", 1), ("bb ", 2)),  # before the first part there is none
    *(("G", None), ("g", 1), (END, None), (HOME, 1), (ESC + "[4~", None), (ESC + "[1~", 1)),
    *(("3", 3), ("g", 1)),  # a number that nothing can follow is taken at once
    *((f"xé{ESC}[15~{ESC}x{ESC}[[A\x0cn", 2), ("\x1cn", 3)),  # what means nothing changes nothing
]

WALK_KEYS = [  # of more than ten parts
    *(("2\r\r", 3), ("11", 11)),  # an Enter right after a number that needed none goes no further
    *(("1\r", 1), ("n", 2), ("1", 1)),  # one that may go on is taken at Enter, or after a second
    *(("1\x7f2", 2), (f"1{ESC}", 2), ("1n", 3)),  # it can be changed and dropped
]


@pytest.mark.parametrize(("typed", "keys"), [(STORY, STORY_KEYS), (WALK, WALK_KEYS)], ids=["story", "walk"])
def test_keys_go_on_and_back_and_to_a_part(typed, keys):
    with Stage(*typed) as stage:
        count = stage.count()
        assert (count > 10) == (typed is WALK)
        for pressed, number in keys:
            stage.press(*re.findall(f"{ESC}\\[\\[?[\\d;]*[~A-Z]|{ESC}O[A-Z]|{ESC}x|.", pressed, re.DOTALL))
            stage.wait_for(part(number or count, stage))


def footers(blocks, keys, rows=()):
    """The last line of each screen that keys bring; `rows` are the terminal's, each time it is asked, then 24."""
    pressed, sizes, found = iter(keys), iter(rows), []
    screen = SimpleNamespace(
        size=lambda: os.terminal_size((80, next(sizes, 24))),
        key=lambda wait=None: next(pressed),
        draw=lambda shown, footer: found.append(footer),
    )
    Presenter(lambda view: blocks, View(), screen).run()
    return found


@pytest.mark.parametrize(
    ("count", "keys", "number"), [(10, "10", 10), (9, "9", 9), (9, "19", 9), (20, "2\r", 2)]
)
def test_a_number_that_may_go_on_waits_and_the_last_part_has_one(count, keys, number):
    blocks = [block for n in range(count) for block in (Heading(f"{n}."), Say("so"))]
    pressed = [*("enter" if key == "\r" else key for key in keys), "q"]
    assert footers(blocks, pressed)[-1].endswith(f"part {number} of {count}")


def test_another_size_stays_at_about_the_same_lines_of_a_part():
    blocks = [Say("so")] * 40
    found = footers(blocks, ["down", "redraw", "q"], [21, 21, 21, 11, 11])
    assert [footer.split()[-1] for footer in found] == ["1/2", "2/2", "3/4"]


def test_the_parts_have_their_headings_on_a_cleared_screen_and_keys_and_numbers_are_shown():
    with shown(*STORY) as stage:
        first = stage.screen()
        assert "?: all keys" in first[-1]
        stage.press("?")
        listed = stage.wait_for(lambda s: "Any key" in "".join(s.screen()))
        assert all(len(line) <= 60 for line in listed) and any("Home" in line for line in listed)
        stage.press("q")
        assert stage.wait_for(part(1, stage))[0] == first[0]
        stage.press(" ")
        second = stage.wait_for(part(2, stage))
        headings = [line for line in second if re.match(r"\d+\. ", line)]
        assert headings == ["1. A dictionary: the key as written"] and first[0] not in second
        stage.press("0", "9")
        assert "There are" in stage.wait_for(lambda s: "There are" in s.screen()[-1])[-1]
    with shown(*WALK) as stage:
        stage.press("1")
        assert stage.wait_for(lambda s: s.screen()[-1].startswith("part: 1 "))[-1].endswith(part(1, stage))


@pytest.mark.parametrize("half", ["[", "O", "[1;"])
def test_a_key_that_arrives_in_halves_is_no_esc(half):
    with shown(*STORY) as stage:
        stage.press(ESC + half)
        time.sleep(0.2)  # much longer than such a key takes
        stage.press("n")
        stage.wait_for(part(2, stage))
        stage.press(ESC + LEFT)  # Alt and left, as some terminals send it
        stage.wait_for(part(1, stage))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_pressed_and_whatever_the_size_the_terminal_is_given_back(seed):
    keys = [*" b3?gGé0\x00\x7f\x0c", "12", ESC + "[", ESC + "[C", UP, DOWN]
    rng, (columns, rows) = Random(seed), ((20, 3), (5, 1), (300, 100))[seed]
    with Stage(*STORY, columns=columns, rows=rows) as stage:
        stage.wait_for(lambda s: b"\x1b[2J" in s.shown)
        for _ in range(25):
            stage.press(*rng.choices(keys, k=rng.randrange(6)))
            stage.resize(rng.randrange(1, 120), rng.randrange(1, 40))
            stage.read(0.01)
        with contextlib.suppress(ProcessLookupError):  # a key at the end has quit it
            os.kill(stage.run.pid, signal.SIGTERM)
        assert stage.code() in (0, 143)
        assert stage.modes() == stage.before
        assert stage.shown.count(b"\x1b[?1049h") == stage.shown.count(b"\x1b[?1049l") == 1
        assert b"Traceback" not in stage.shown and b"bug" not in stage.shown


def test_a_part_taller_than_the_terminal_is_seen_whole_and_another_size_draws_it_anew():
    whole = attn("example", "dictionary", "--width", "80").out
    tall = [line for line in whole[whole.index("3. ") : whole.index("From soft")].splitlines() if line]
    with shown(*STORY, rows=9) as stage:
        stage.press("4")
        number = part(4, stage)
        screens = int(stage.wait_for(lambda s: f"{number}, 1/" in s.screen()[-1])[-1].rpartition("/")[2])
        seen = []
        for at in range(1, screens + 1):
            seen += stage.wait_for(f"{number}, {at}/{screens}")[:-1]
            stage.press(DOWN)  # which never leaves the part
        assert [line for line in seen if line] == tall
        stage.press(" ")
        stage.wait_for(lambda s: part(5, s) in s.screen()[-1])
        stage.press("b")
        stage.wait_for(f"{number}, {screens}/{screens}")
        stage.press(*[UP] * 9)
        stage.wait_for(f"{number}, 1/{screens}")
    with shown(*WALK) as stage:
        stage.press("n")
        wide = stage.wait_for(part(2, stage))
        stage.resize(40, 12)
        narrow = stage.wait_for(lambda s: part(2, s) in s.screen()[-1] and s.screen()[0] == wide[0][:40])
        assert narrow[0] == wide[0]
        stage.resize(100, 30)
        assert stage.wait_for(part(2, stage))[0] == wide[0]


@pytest.mark.parametrize("keys", ["q", "Q", ESC, "GGnn"])
def test_the_terminal_is_as_before_and_what_was_shown_stays(keys):
    with shown(*STORY) as stage:
        assert stage.modes() != stage.before
        stage.press("n")
        stage.wait_for(part(2, stage))
        stage.press("b", *keys)
        assert stage.code() == 0
        assert stage.modes() == stage.before
        before, _, after = stage.shown.rpartition(FIRST_SCREEN_AGAIN)
        assert before and b"\x1b[?1049h\x1b[?25l" in before
        whole = attn("example", "dictionary", "--width", "80").out
        last = whole[whole.index("\nFrom soft") :] if keys.startswith("G") else ""
        assert plain(after.decode()).replace("\r\n", "\n") == whole[: whole.index("\n2. ")] + last


def test_at_the_end_one_key_more_says_so_and_another_leaves():
    with Stage(*STORY) as stage:
        for keys, more in (("Gn", "b"), ("nn", " ")):
            stage.press(*keys)
            stage.wait_for(lambda s: s.screen()[-1].startswith("End."))
            stage.press(more)
        assert stage.code() == 0


@pytest.mark.parametrize(
    ("how", "code"),
    [("\x03", 130), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, -3)],
)
@like_cases
def test_a_signal_gives_the_terminal_back(how, code):
    if how == signal.SIGQUIT and signal.getsignal(how) == signal.SIG_IGN:
        pytest.skip("whoever runs the tests has this signal ignored, and so does attn")
    with shown(*STORY) as stage:
        if isinstance(how, str):
            stage.press(how)
        else:
            os.kill(stage.run.pid, how)
        assert stage.code() == code
        assert stage.modes() == stage.before
        assert stage.shown.endswith(FIRST_SCREEN_AGAIN) and b"Traceback" not in stage.shown


def test_a_terminal_that_has_gone_ends_it():
    with shown(*STORY) as stage:
        os.close(stage.its)
        os.close(stage.terminal)
        stage.terminal, stage.its = os.pipe()
        assert stage.run.wait(60) == 129


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again():
    line = f"set -m; {COMMAND[0]} -m attn_cli example dictionary --pause; echo stopped $?; read; fg; echo ended $?"
    child = pexpect.spawn("bash", ["-c", line], env=surroundings(), dimensions=(24, 80), timeout=60)
    before = termios.tcgetattr(child.fileno())
    for key, seen in (("", "part 1 of 5"), ("n", "part 2 of 5"), ("\x1a", "stopped 148")):
        child.send(key)
        child.expect(seen)
    assert FIRST_SCREEN_AGAIN in child.before
    assert termios.tcgetattr(child.fileno()) == before
    child.send("\n")
    child.expect_exact("\x1b[?1049h\x1b[?25l")
    child.expect("part 2 of 5")
    assert termios.tcgetattr(child.fileno()) != before
    child.send("q")
    child.expect("ended 0")
    assert termios.tcgetattr(child.fileno()) == before
    child.close()


def test_keys_come_from_the_terminal_where_the_text_comes_from_a_pipe():
    read, write = os.pipe()
    os.write(write, TEXT.encode())
    os.close(write)
    with Stage("explain", "--from", "tokens", "--pause", stdin=read) as stage:
        os.close(read)
        stage.wait_for(part(1, stage))
        stage.press("n", "q")
        assert stage.code() == 0


@pytest.mark.parametrize("term", ["dumb", "", None])
def test_on_a_terminal_that_can_clear_nothing_one_part_follows_the_other(term):
    with Stage(*STORY, env={"TERM": term}) as stage:
        for number in range(4):
            stage.wait_for(lambda s, n=number: s.shown.count(b"any key continues") == n + 1)
            stage.wait_for(lambda s: s.modes() != s.before)  # the prompt comes first
            stage.press(" ")
        assert stage.code() == 0
        assert stage.modes() == stage.before
        shown = re.sub(r"-- any key continues, q quits --\r *\r", "", plain(stage.shown.decode()))
        assert shown.replace("\r\n", "\n") == attn("example", "dictionary", "--width", "80").out
    for key, code in (("q", 0), ("\x03", 130)) if term else ():
        with Stage(*STORY, env={"TERM": term}) as stage:
            stage.wait_for(lambda s: b"any key continues" in s.shown)
            stage.press(key)
            assert stage.code() == code and stage.modes() == stage.before
            assert b"1. A dictionary" not in stage.shown and b"Traceback" not in stage.shown


def test_a_pause_where_nobody_watches_is_none_and_a_standing_format_gives_way_to_it(at):
    ran = attn("explain", TEXT, "--pause")
    assert ran.code == 0 and "only on a terminal" in ran.err
    assert ran.out == attn("explain", TEXT).out
    Path("attn.toml").write_text('format = "csv"\n')
    ran = here("explain", TEXT, "--pause")
    assert ran.code == 0 and "One row by hand" in ran.out
    ran = here("explain", TEXT, "--pause", env={"ATTN_FORMAT": "markdown"})
    assert ran.code == 78 and "ATTN_FORMAT" in ran.err


pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="reads how a terminal is set from its other end"
)
