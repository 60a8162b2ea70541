"""Whole screens, documents and sheets of vectors and matrices so small that each number can be checked by hand."""

import contextlib
import re
import shlex
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attn_cli.io.terminal import Terminal
from attn_cli.models.logit_parts import Part
from attn_cli.pipeline.effect import Effect, Patch, Without, Word
from attn_cli.pipeline.heads_of_texts import MEASURES, HeadOverTexts, HeadsOverTexts, Spread
from attn_cli.pipeline.verify import Figure, Verdict
from attn_cli.render import Bars, Beside, Columns, Formula, Heading, Links, Maps, Matrix, Say, ShadeRange
from attn_cli.render.formats import FORMATS, formats, render_blocks
from attn_cli.render.views import effect, heads_of_texts, patch, verify
from attn_cli.settings import View
from tests.docs import alike
from tests.shell import here

PAGE = Path(__file__).with_name("by_hand.txt").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^(\w+(?:\.\w+)?): (.*)", PAGE.partition("$ attn ")[0], re.M))
# Each command with what it prints, of a document behind its style or preamble; ... stands for what is left out.
SCREENS = [block.partition("\n")[::2] for block in PAGE.partition("\n$ made ")[0].split("\n$ attn ")[1:]]
BEFORE = re.compile(r"(?s)^.*(?=\\(attntitle|begin\{document\}))|(?<=<style>).*(?=</style>)")


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text.replace(" / ", "\n"))


def shown(line: str) -> str:
    """Run a command, V standing for the vectors and LONG for a long text of them, and return what it prints."""
    args = shlex.split(line.replace(" V", " -e v.txt -p identity").replace("LONG", f"'{300 * 'a b c d '}'"))
    ran = here(*args, env={"ATTN_WIDTH": "100"})
    return (ran.err + BEFORE.sub("", ran.out)).rstrip("\n")


@pytest.mark.parametrize(("line", "wanted"), SCREENS, ids=[line for line, _ in SCREENS])
def test_a_screen_whose_numbers_can_be_checked_by_hand_is_as_written(at, line, wanted):
    write_files(at)
    text, parts = shown(line), wanted.rstrip("\n").split("\n...\n")
    is_alike = alike(wanted.splitlines(), text.splitlines())
    assert is_alike or (len(parts) > 1 and all(part in text for part in parts)), text


# Screens of what a model would have to compute, which here is made up; they stand behind the others, with their names.
ADDED = enumerate((0.5, -1.5, 0, 0.25, 12, -0.75))
HEADS = [Part("head", value, n // 3, n % 3, "self") for n, value in ADDED]
OTHERS = [Part("embedding", 1.0), Part("mlp", 2.0, 0), Part("mlp", -3.0, 1), Part("attention bias", 0.25, 0)]
LEFT = zip((9.5, 12.5, 10.25, 10, 4.25, 11), (0.4, 0.625, 0.5, 0.5, 0.125, 0.5), strict=True)
MOVED = np.array([1, -2, 0.5, 0.25, 8, 4, -0.125, 0.0625, 0.25, 0.0625])
SEA, LAKE, TEXT = Word(" sea", 1), Word("lake", 2), (*"abcdefghij",)
WITHOUT = tuple(Without(n // 3, n % 3, *left, "self") for n, left in enumerate(LEFT))
EFFECT = Effect(
    *("m", TEXT, 9, False, SEA, LAKE, 10.25, 0.5, 1, None, (*HEADS, *OTHERS, Part("mlp bias", -0.5, 1))),
    *((("0", "1", "2"), ("0", "induction", "2")), (HEADS[4], TEXT, MOVED), WITHOUT, False, ("one", "two")),
)
STREAM, OF_HEADS = np.full((3, 10), -2.0), np.array([[-2, -1], [-2, 0], [-1.5, np.nan]])
STREAM[[0, 0, 1, 2], [2, 3, 3, 9]] = -1.75, 1, 1.5, 2
MAPS, NAMES = {"residual": STREAM, "heads": OF_HEADS}, (("0", "1"), ("0", "next"), ("0",))
PATCH = Patch("m", ("", ""), (TEXT, (*"abxyefghij",)), 9, False, SEA, LAKE, 2.0, -2.0, MAPS, NAMES, ("one",))
ALIKE = {"residual": STREAM[[0, 1, 1, 2]]}
SAME = {name: np.full_like(values, -2) for name, values in MAPS.items()}
FIGURES = [("inputs", "query", 0, "self", 2e-7, 1e-5), ("logits", None, None, None, 3e-6, 1e-4)]
FIGURES += [("inputs", "query", 1, "cross", 4e-5, 1e-5), ("output", None, 1, "masked", 1e-6, 1e-5)]
FIGURES.append(("inputs", "key", 0, "self", 3e-7, 1e-5))
VERDICT = Verdict("m", "gpt2", "transformers 5", 2, 7, tuple(Figure(*one) for one in FIGURES), ("one",))
GOOD = VERDICT._replace(figures=VERDICT.figures[:2], texts=1)
ONE = {"against": None, "softcap": 30.0, "fills": True, "rank": 2, "logit": 9.875}
ONE |= {"moved": (HEADS[4], TEXT[:8], MOVED[:8]), "knock_outs": WITHOUT[4:]}
ROLES = Counter({"previous": 2, "mixed": 1})
ALONE = {"against": None, "notes": ("two", "transformers has no gpt2.")}
BOTH = [one._replace(attention="cross" if one.layer else "masked") for one in HEADS]
NONE = dict.fromkeys(MEASURES, Spread(None, None, 0))
MEANS = (("0", 0.5), ("2", 0.75), ("1", 0.625))
OVER = [HeadOverTexts(0, name, NONE | {"previous": Spread(mean, 0, 3)}, ROLES) for name, mean in MEANS]
OVER = HeadsOverTexts("m", "self", 3, 9, (*OVER, OVER[0]._replace(layer=1)), ())
# Every kind of block, in every format that is made of blocks.
HALF, WORDS = np.array([[0.25, np.nan], [0.5, 1.0]]), ["<b> of more than 24 letters", "cat"]
UNIT, SMALL = ShadeRange(0.0, 1.0), ShadeRange(0.0, 0.00125)
UP, CAT = np.array([[0.25, -0.125], [0, np.nan]]), Matrix(["cat"], ["dog"], np.ones((1, 1)))
LONG = ["10", "counterrevolution", "中文e\u0301字", "x", "overmuch", "cat"]
SHARES = np.array([[0.25, np.nan, 0.5, 0.0625, 0.125, 0.03125], [0.5, 1, 0, 0.75, 0.5, 0.25]])
WIDE = Matrix(["extraordinarily", "東京中文注意力机制"], LONG, SHARES, "q\\k", ["1.000", "3.00"], True, True)
TWELVE = np.arange(24.0).reshape(2, 12) / 23
TWELVE = Maps(
    ["東京", "one of many"], ["cat", LONG[2] * 3], [*"abcdefghijkl"], [TWELVE, 1 - TWELVE], UNIT, [3, 14]
)
BLOCKS = [
    *map(Heading, ("One & two", "Part", "Step"), (1, 2, 3)),
    *(Say("Say * this."), Say("Aside.", True), Say(""), Say("√d_k and q·k … – ᵀ"), Formula("1 + 2")),
    Formula("q·k / √4 = 1e-05", '"a_b":', r"\frac{1}{2}"),
    Matrix(WORDS, ["it", "[x]"], HALF, "q\\k", ["0.25", "1.50"], True, True, more="2 more rows"),
    Matrix(WORDS, ["0", "1"], np.array([[0.0004, -0.002], [-12, 0]]), "d", shaded=True),
    Matrix(["0", "1"], ["0", "1"], UP, "up", shaded=True, is_difference=True),
    Matrix(["r"], ["c", "d"], np.array([[0, 1]]), "T", shaded=True, marks=("F", "T")),
    Matrix(["w"], [f"{n}" for n in range(14)], np.arange(14.0)[None] / 8, "X", fits=True),
    Beside(["left", "right"], [CAT, CAT._replace(values=HALF[:1, :1])]),
    Maps(["0", "one"], ["xi", "pi"], ["rho", "tau"], [HALF, HALF.T], UNIT, [3, 4], is_weights=True),
    Maps([""], ["", ""], ["c", "d"], [HALF / 900], SMALL, [0, 60], [0, 30]),
    Maps(["0 P", "1"], WORDS, WORDS, [HALF, HALF.T], UNIT, [0, 1], is_weights=True, bands=[" 0", ""]),
    Columns(["what", "much"], [["alpha", "12.5"], ["b_c", "file-1.txt"], ["d", "1 to 2e-05"]]),
    Links([("psi", [(letter, "0.125") for letter in "omegas"]), ("aleph", []), ("beth", [("<i>", "1.000")])]),
    Bars("Title", [("gimel", 0.5), ("dalet", None), ("he", 0.125), ("vav", 0.0)], 0.5, "probability"),
]
WANTED = dict(block.partition("\n")[::2] for block in PAGE.split("\n$ made ")[1:])


@cache
def made() -> dict[str, str]:
    """Return each screen of made-up numbers, and all blocks in each format, by its name."""
    screens = {
        "effect": [*effect.screen(EFFECT, 4, View())],
        "effect of one word": [*effect.screen(EFFECT._replace(**ONE), 1, View())],
        "maps of two attentions": [*effect.maps(EFFECT._replace(parts=BOTH, knock_outs=())).values()],
        "patch": [*patch.screen(PATCH, View())],
        "patch of three layers alike": [*patch.screen(PATCH._replace(maps=MAPS | ALIKE), View())][-3:-2],
        "patch of equal differences": [*patch.screen(PATCH._replace(clean=-2.0), View())],
        "patch of heads": [*patch.screen(PATCH._replace(maps=MAPS | {"residual": SAME["residual"]}), View())],
        "patch in which nothing comes back": [*patch.screen(PATCH._replace(maps=SAME), View())],
        "verify, too large": [*verify.screen(VERDICT, View()), Say(verify.sentence(VERDICT))],
        "verify": [*verify.screen(GOOD, View()), Say(verify.sentence(GOOD))],
        "heads over texts": [*heads_of_texts.screen(OVER, View())][1:2],
        "verify alone": [Say(verify.sentence(one._replace(**ALONE))) for one in (VERDICT, GOOD)],
    }
    for left in ((0, 1, 9.5), (0, 1, 11.0), (1, 1, 11.0), (1, 1, -4.0)):
        alone = EFFECT._replace(notes=(), knock_outs=(Without(*left, 0.4, "self"),))
        screens[f"effect without {left}"] = [*effect.screen(alone, 1, View())][-1:]
    found = {name: render_blocks(one, View(width=100), Terminal(100)) for name, one in screens.items()}
    for name in ("table", "table 40", "markdown", "latex", "html", "svg"):
        width = 40 if name == "table 40" else 90
        shown_in = View(format=name.split()[0], width=width)
        found[name] = BEFORE.sub("", render_blocks(BLOCKS, shown_in, Terminal(width, encoding="utf_8")))
    grey = render_blocks(BLOCKS[-6:-3] + BLOCKS[-1:], View(format="html", color="never"), Terminal(90))
    found["html without colours"] = BEFORE.sub("", grey).partition("<tbody>")[2]
    numbered = WIDE._replace(row_numbers=[3, 14])  # 40: 15 for the rows', 6 times 3, and 7 for sums
    narrow = ((38, WIDE), (46, numbered), (64, TWELVE), (40, numbered._replace(values=SHARES / 2)))
    narrow += ((30, numbered), (40, BLOCKS[13]._replace(around=9)))
    found["narrow"] = "".join(render_blocks([one], View(), Terminal(width)) for width, one in narrow)
    most = Bars("", [("a", 1.0), ("b", 0.49)], 1.0, "share")  # 0.49 of 40 signs is nearest to 20
    found["ascii bars"] = render_blocks([most], View(), Terminal(90, encoding="ascii"))
    found["ascii"] = render_blocks(BLOCKS, View(width=90, precision=2), Terminal(90, encoding="ascii"))
    return found


@pytest.mark.parametrize("name", WANTED)
def test_a_screen_of_made_up_numbers_is_as_written(name):
    assert made().keys() == WANTED.keys()
    assert made()[name].strip() == WANTED[name].strip()


OF_DATA = [name for name in formats() if FORMATS[name].needs not in ("blocks", "bars")]


@pytest.mark.parametrize("format", OF_DATA)
def test_a_format_of_data_takes_no_blocks(format):
    with pytest.raises(ValueError, match="nothing that the format needs"):
        render_blocks(BLOCKS, View(format=format), Terminal(80))


def rewritten() -> str:
    """Return by_hand.txt with what attn prints today; a screen of which parts are left out stays as it is."""
    page = PAGE
    for line, old in SCREENS:
        if "\n...\n" not in old:
            page = page.replace(
                f"\n$ attn {line}\n{old}", f"\n$ attn {line}\n{shown(line)}\n" + "\n" * old.endswith("\n\n")
            )
    for name, text in made().items():
        page = page.replace(f"\n$ made {name}\n{WANTED[name]}", f"\n$ made {name}\n{text.strip()}\n")
    return page.rstrip("\n") + "\n"


if __name__ == "__main__":  # read what has changed before you keep it
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        Path(__file__).with_name("by_hand.txt").write_text(rewritten(), encoding="utf-8")
