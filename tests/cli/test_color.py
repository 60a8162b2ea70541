"""Colour: when there is any, how much, and that it adds nothing but colour."""

import os
import re

import pytest

from attn_cli.render.ramps import ramp, text_on
from tests.cli.tables import apart, typed
from tests.render.document import test_documents as documents
from tests.shell import SGR, here, plain, terminal

FOX = "The quick brown fox jumped over the lazy dog"
MUCH = " ".join(f"word{i}" for i in range(30))
SIXTEEN = re.compile("0|1|2|1;2|(3[0-7]|9[0-7])(;(4[0-7]|10[0-7]))?")
INDEXED = re.compile("38;5;[0-9]+(;48;5;[0-9]+)?")
TRUE = re.compile("38;2(;[0-9]+){3}(;48;2(;[0-9]+){3})?")


def codes(text: str) -> set[str]:
    return {code[2:-1] for code in SGR.findall(text)} - {"0", "1", "2"}


IN_A_PIPE = """
no | always yes | never no | NO_COLOR=1 always yes | NO_COLOR=1 CLICOLOR_FORCE=1 FORCE_COLOR=1 no | NO_COLOR= no
NO_COLOR= FORCE_COLOR=1 yes | CLICOLOR_FORCE=1 yes | CLICOLOR_FORCE=0 no | CLICOLOR_FORCE=1 never no
FORCE_COLOR=1 yes | FORCE_COLOR=3 yes | FORCE_COLOR=0 no | FORCE_COLOR= no | CLICOLOR=1 no
FORCE_COLOR=1 CLICOLOR=0 TERM=dumb yes | CLICOLOR_FORCE=1 FORCE_COLOR=0 yes | TERM=dumb always yes
ATTN_COLOR=always yes | ATTN_COLOR=always NO_COLOR=1 yes | ATTN_COLOR=always never no
"""
ON_A_TERMINAL = """
yes | never no | NO_COLOR=1 no | NO_COLOR= yes | CLICOLOR=0 no | CLICOLOR=1 yes | FORCE_COLOR=0 no
CLICOLOR_FORCE=0 yes | CLICOLOR=0 CLICOLOR_FORCE=1 yes | TERM=dumb no | TERM=dumb always yes | TERM=? yes
"""

CASES = [*((here, case) for case in apart(IN_A_PIPE)), *((terminal, case) for case in apart(ON_A_TERMINAL))]


@pytest.mark.parametrize(("run", "case"), CASES)
def test_colour_comes_in_a_pipe_where_it_is_forced_and_on_a_terminal_unless_it_is_refused(run, case):
    """A case has variables, one of which may be taken away (?), the value of --color, and whether colour is seen."""
    *words, seen = case.split()
    env = dict(word.replace("?", "").split("=") for word in words if "=" in word)
    flags = [part for word in words if "=" not in word for part in ("--color", word)]
    env = {name: None if f"{name}=?" in words else value for name, value in env.items()}
    ran = run("self", FOX, *flags, env=env)
    assert ran.code == 0 and "\x1b" not in plain(ran.out) and ("\x1b[" in ran.out) is (seen == "yes")


def test_a_file_gets_colour_only_by_the_flag_and_is_named_on_a_terminal(tmp_path):
    for name, flag, expected in (("a.txt", [], False), ("b.txt", ["--color", "always"], True)):
        ran = terminal("self", FOX, "-o", str(tmp_path / name), *flag)
        assert " ".join(ran.out.split()).endswith(f"wrote {tmp_path / name}.")
        assert ("\x1b[" in (tmp_path / name).read_text()) is expected
        assert here("self", FOX, "-o", str(tmp_path / name)).err == ""
    assert terminal("self", FOX, "-o", os.devnull).out == ""


TERMS = {"xterm | linux | ?": SIXTEEN, "xterm-256color | screen-256color no": INDEXED}
TERMS |= {"xterm truecolor | xterm-256color 24BIT | xterm-direct": TRUE}


@pytest.mark.parametrize(("terms", "kind"), TERMS.items())
def test_the_terminal_gets_as_many_colours_as_it_says_it_has(terms, kind):
    for term, colorterm in ((*one.split(), None)[:2] for one in apart(terms)):
        env = {"TERM": None if term == "?" else term, "COLORTERM": colorterm}
        colours = ("--color", "always", "-f")
        found = codes("".join(here("self", FOX, *colours, form, env=env).out for form in ("table", "bars")))
        assert len(found) > 2 and all(kind.fullmatch(code) for code in found), (term, found)


SCREENS = f"""
self "{FOX}" | self "{FOX}" -f bars | explain "{FOX}" | explain "{FOX}" --context "she likes coffee" -q fox
masked "{FOX}" -q jumped --steps | masked "{MUCH}" -e random --width 80 | self "{MUCH}" -e random --width 60
self "{FOX}" -e random --heads 2 --head all | self "{FOX}" --head all | masked "{FOX}" --head all --width 60
self "{FOX}" -p identity | self "{FOX}" --top 2 | example coffee --steps
"""


@pytest.mark.parametrize("args", typed(SCREENS))
def test_colour_adds_only_colour_and_every_coloured_line_is_reset_before_it_ends(args):
    without = here(*args, "--color", "never").out
    assert "\x1b" not in without
    for term in ("xterm", "xterm-256color", "xterm-direct"):
        shown = here(*args, "--color", "always", env={"TERM": term}).out
        assert plain(shown) == without and shown != without
        opened = [SGR.findall(line)[-1:] for line in shown.splitlines()]
        assert all(last in ([], ["\x1b[0m"]) for last in opened)


def test_a_light_background_gets_a_ramp_that_is_light_where_weights_are_low():
    for background, rise in {"0;15": -1, "0;7": -1, "0;default;15": -1, "15;0": 1, "7;8": 1}.items():
        env = {"COLORFGBG": background, "TERM": "xterm", "COLORTERM": "truecolor"}
        line = here("self", "a b", "-e", "random", "--color", "always", env=env).out
        legend = next(text for text in line.splitlines() if "shades" in plain(text))
        low, *_, high = re.findall(r"48;2;(\d+);(\d+);(\d+)m", legend)
        assert rise * (sum(map(int, high)) - sum(map(int, low))) > 200, background


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return documents.contrast(bytes(one).hex(), bytes(other).hex())


def test_on_a_background_that_nobody_knows_every_colour_stands_out_from_white_and_from_black():
    for rgb in (*ramp("either", False), *ramp("either", True)):
        assert min(contrast(rgb, (255,) * 3), contrast(rgb, (0,) * 3)) >= 3
        assert contrast(rgb, text_on(rgb)) >= 4.5
    env = {"COLORFGBG": "", "TERM": "xterm", "COLORTERM": "truecolor"}
    for args in (["self", FOX], ["self", FOX, "-f", "bars"], ["compare", FOX, "--vary", "temperature=1,2"]):
        found = set(re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", here(*args, "--color", "always", env=env).out))
        drawn = {tuple(map(int, rgb)) for rgb in found} - {(0, 0, 0), (255, 255, 255)}
        assert drawn and drawn <= {*ramp("either"), *ramp("either", True)}
    text = here("self", FOX, "--color", "always", env=env).out
    assert re.search(r"jumped +\x1b\[0m +\.001", text), "the least weights are on no colour"


def test_each_palette_has_shades_of_its_own_in_order_of_lightness():
    seen, texts = set(), set()
    for palette in ("viridis", "cividis", "blues", "greys"):
        asked = ("self", MUCH, "-e", "random", "--color", "always", "--palette", palette)
        out = here(*asked, env={"TERM": "xterm-direct"}).out
        (legend,) = (line for line in out.splitlines() if "shades:" in plain(line))
        light = [
            documents.luminance(bytes(map(int, rgb)).hex())
            for rgb in re.findall(r"48;2;(\d+);(\d+);(\d+)m", legend)
        ]
        assert light == sorted(light, reverse=palette in ("blues", "greys")) and len(set(light)) == 8
        seen.add(frozenset(codes(out)))
        texts.add(plain(out))
        shown = [here(*asked, env={"COLORFGBG": background}).out for background in ("0;15", "15;0")]
        assert shown[0] == shown[1], "a palette that was asked for beats the background"
    assert (len(seen), len(texts)) == (4, 1)
