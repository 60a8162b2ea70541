"""What a reader does with a page: look, change, type, walk, and take things away."""

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from tests import shell
from tests.alike import FLOAT32
from tests.browser import FOX, made
from tests.cli.tables import typed as commands
from tests.models.checkpoints.by_hand import small_gpt2
from tests.shell import attn
from tests.thorough import like_cases

COMPUTES = "() => document.getElementById('command').textContent.includes('compute attn-numbers')"


def record(*args: str) -> dict:
    return shell.record(*args, "--steps")


def computed(numbers: str) -> dict:
    return json.loads(attn("compute", "-", "-f", "json", "--steps", input=numbers).out)


def same(saved: dict, expected: dict, within: float = 1e-6) -> bool:
    near = np.allclose(saved["weights"], expected["weights"], rtol=0, atol=within)
    return saved["mask"] == expected["mask"] and near


def shown(opened) -> tuple[list[str], dict]:
    """Return the arguments of the command that the page shows, and the record that it saves."""
    program, *args = shlex.split(opened.text("#command"))
    assert program == "attn"
    return args, opened.record()


def test_a_slider_goes_through_the_steps_of_a_text_that_was_written(opened):
    asked = ("generate", "The quick brown fox", "--count", "6")
    told = [json.loads(line) for line in attn(*asked).out.splitlines()]
    opened.make(*asked, "-f", "page")
    assert opened.page.get_attribute("#writing-step", "max") == "5"
    for n, step in enumerate(told):
        opened.page.fill("#writing-step", str(n))
        says, strongest = opened.text("#writing-says"), max(step["weights"])
        assert says.startswith(f"{n + 1} of 6: {step['word']} {step['probability']:.3f}; runners-up: ")
        assert all(one["word"] in says for one in step["runners_up"])
        for part in (f"({strongest:.3f})", step["key_tokens"][step["weights"].index(strongest)]):
            assert part in opened.text("#row-says")


def test_a_cell_shows_its_arithmetic_keys_walk_the_matrix_and_tab_reaches_every_control(opened, fox):
    opened.go(fox)
    opened.page.hover("[data-at='4,3']")
    expected = record("self", FOX)
    weight, (head,) = expected["weights"][4][3], expected["heads"]
    assert opened.text("#cell-title") == f"jumped → fox: {weight:.3f}"
    assert opened.text("#row-says").startswith(f"jumped looks most at fox ({weight:.3f}), then at ")
    (because,) = record("explain", FOX, "-q", "jumped")["because"]
    content, distance = (f"{round(because[part], 4):g}" for part in ("content", "distance"))
    ahead = f"content puts it {content} behind, distance {distance} behind"
    assert f"Why not {because['rival']}? " in opened.text("#because") and ahead in opened.text("#because")
    for name, key in (("scaled", "scaled_scores"), ("distance", "position_scores")):
        assert float(opened.text(f"#{name}")) == pytest.approx(head[key][4][3], abs=5e-5)
    score = head["scores"][4][3]
    assert float(opened.page.input_value("#score input")) == pytest.approx(score, abs=5e-7)
    products = opened.page.locator("svg.bars rect title").all_text_contents()[64:]
    assert sum(float(text.partition(": ")[2]) for text in products) == pytest.approx(score, abs=1e-2)
    opened.page.focus("[data-at='4,3']")
    for key in ("ArrowRight", "ArrowDown", "Home"):
        opened.page.keyboard.press(key)
    assert opened.page.evaluate("document.activeElement.dataset.at") == "5,0"
    assert opened.text("#cell-title").startswith("over → The: ")
    assert opened.page.locator("[role=gridcell][tabindex='0']").count() == 1
    opened.unfold("more", "what")
    reached = set()
    for _ in range(120):
        opened.page.keyboard.press("Tab")
        reached.add(opened.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    wanted = "head-choice temperature temperature-number score-choice mask-choice reset type show next off-one together"
    assert {*wanted.split(), "copy-command", "save-svg", "save-json", "TD", "g"} <= reached


def test_the_controls_compute_anew_and_the_command_or_the_saved_numbers_make_the_same_view(opened, fox):
    opened.go(fox)
    opened.unfold()
    opened.page.select_option("#head-choice", "subject")
    opened.enter("#temperature-number", "0.5")
    opened.page.select_option("#score-choice", "dot")
    opened.page.select_option("#mask-choice", "window")
    opened.enter("#window-left", "3")
    for button, named in ((4, "fox"), (4, "3"), (1, "the")):  # a repeated word is named by its place
        opened.page.click(f"#off button:nth-child({button})")
        args, saved = shown(opened)
        assert args[-3:-1] == ["--without", named] and same(saved, record(*args))
        if named == "fox":
            opened.make("page", "the cat saw the dog", "--words", "0")
            opened.unfold()
    opened.go(fox)  # and a score, or a number of Q, K and V, is typed over
    opened.page.hover("[data-at='4,3']")
    opened.page.fill("#score input", "20")
    opened.page.press("#score input", "Tab")
    opened.page.wait_for_function(COMPUTES)
    assert opened.text("#command") == "attn compute attn-numbers.json"
    numbers, saved = opened.saved("save-numbers"), opened.record()
    head = record("self", FOX)["heads"][0]
    masked = np.array(head["masked_scores"][4])
    masked[3] += (20 - head["scores"][4][3]) / np.sqrt(32)
    assert saved["weights"][4] == pytest.approx((np.exp(masked) / np.exp(masked).sum()).tolist(), abs=1e-6)
    assert same(saved, computed(numbers))
    opened.make("example", "coffee", "-f", "page")
    opened.page.click("#edit-part summary")
    opened.page.fill("#edit input >> nth=0", "2")
    opened.page.press("#edit input >> nth=0", "Tab")
    opened.page.wait_for_function(COMPUTES)
    numbers, saved = opened.saved("save-numbers"), opened.record()
    assert json.loads(numbers)["Q"][0][0] == 2 and same(saved, computed(numbers))
    assert saved["weights"] != record("example", "coffee")["weights"]
    opened.go(fox, "#mask=causal&t=2")
    again = json.loads(attn("show", "-", "-f", "json", "--steps", input=opened.saved("save-json")).out)
    assert same(again, record("self", FOX, "--mask", "causal", "-t", "2"))
    assert not [note for note in again["notes"] if "left out" in note]  # its steps follow from each other


def test_the_walk_has_the_sentences_of_explain_and_a_link_that_opens_the_same_step(opened, fox):
    opened.go(fox)
    told = " ".join(attn("explain", FOX, "--steps").out.split())
    told += "The text has 9 tokens, 9 distinct; ids number the distinct ones from 0."  # explain: the vectors' rows
    told += "No mask: every query may look at every key."  # a step that explain leaves out
    titles = []
    while not opened.page.is_disabled("#next"):
        opened.page.click("#next")
        titles.append(opened.text("#walk h3"))
        assert " ".join(opened.text("#walk p:last-child").split()) in told
    assert len(titles) == len(set(titles)) >= 9
    opened.page.click("#back")
    opened.page.wait_for_function("step => location.hash.includes(`step=${step}&`)", arg=len(titles) - 1)
    link, title = opened.page.evaluate("location.hash"), opened.text("#walk h3")
    opened.page.goto("about:blank")
    opened.go(fox, link)
    assert opened.text("#walk h3") == title


def sentence(opened) -> str:
    return " ".join(opened.page.locator("#words [role=toolbar] > *").all_text_contents())


def test_words_that_a_small_page_does_not_have_are_said_or_left_out_of_a_link(opened, fox, tmp_path):
    for more, most in (("-p", "roles-deep"), 550_000), ((), 1_900_000), (("--words", "0"), 180_000):
        assert made(tmp_path, "page", FOX, *more).stat().st_size <= most
    opened.go(tmp_path / "page.html", "#text=she&t=2")
    assert opened.page.text_content("#command") == f"attn self -t 2 '{FOX}'"
    opened.go(fox)
    opened.enter("#sentence", "The zebra jumped!")
    said = opened.text("#type-says")
    assert "zebra" in said and "jumped" not in said and "Dropped: !" in said
    assert sentence(opened) == "The zebra jumped"
    named = "The zebra jumped. Self-attention: 3 queries (rows) x 3 keys (columns)"
    assert opened.text("#heading") == opened.page.title() == named
    opened.page.click("#own")
    assert sentence(opened) == FOX and opened.page.title().startswith(FOX)


LINKED = "#text={}&t=2"


def typed(opened, text: str) -> None:
    opened.edit()
    opened.page.fill("#sentence", text)
    opened.page.click("#attend")


def opened_with(opened, text: str) -> None:
    address = opened.page.url.partition("#")[0]
    opened.page.goto("about:blank")
    opened.page.goto(address + LINKED.format(quote(text)))


def addressed(opened, how: str, text: str) -> None:
    """Put a link into the address bar, and leave it there: the page would put its own choice in its place."""
    script = "([how, link]) => { history[how](null, '', link); history.replaceState = () => {}; }"
    opened.page.evaluate(script, [how, LINKED.format(quote(text))])
    if how == "replaceState":
        opened.page.reload()
    else:
        opened.follow("#")
        opened.page.go_back()


DOORS = {
    "typed": typed,
    "opened with": opened_with,
    "gone back to": lambda opened, text: addressed(opened, "pushState", text),
    "reloaded with": lambda opened, text: addressed(opened, "replaceState", text),
    "followed": lambda opened, text: opened.follow(LINKED.format(quote(text))),
}
REFUSED = {
    "the " * 61: "61 words are too many: the page takes 60.",
    "...!": "There is no word in it: type some.",
}


@pytest.mark.parametrize("text", REFUSED, ids=["too many words", "no word"])
@pytest.mark.parametrize("door", DOORS)
@like_cases
def test_a_sentence_is_refused_at_every_door_and_one_of_60_words_is_not(opened, fox, door, text):
    opened.go(fox, "#t=3")
    DOORS[door](opened, text)
    opened.page.wait_for_function("() => document.getElementById('type-says').textContent")
    assert opened.text("#type-says") == REFUSED[text]
    assert sentence(opened) == FOX  # and nothing else is taken either
    assert opened.page.input_value("#temperature-number") != "2"
    assert opened.page.locator("#own").is_hidden()
    assert opened.page.text_content("#command").endswith(f"'{FOX}'")
    DOORS[door](opened, " ".join(["the"] * 60))
    opened.page.wait_for_function("() => !document.getElementById('own').hidden")
    assert opened.page.locator("#off button").count() == 60 and not opened.text("#type-says")


def test_several_heads_are_drawn_together_and_the_view_is_saved_as_svg_and_png(opened, fox):
    opened.go(fox)
    opened.unfold()
    paths = opened.page.locator("svg.links path")
    strokes, before = "all => all.map((one) => one.getAttribute('stroke'))", paths.count()
    opened.page.locator("#links-heads input").nth(3).check()
    colours = paths.evaluate_all(strokes)
    assert len(colours) > before and len(set(colours)) == 2
    opened.page.click("#together")
    heads = opened.page.locator("#arcs-heads span.patch").count()
    assert len(set(paths.evaluate_all(strokes))) == heads == 11
    opened.page.click("#grid button:nth-child(3)")
    assert opened.page.input_value("#head-choice") == "subject"
    pictures = []
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        opened.go(fox)
        pictures.append(opened.saved("save-svg"))
    assert pictures[0] == pictures[1]
    words = [text.text for text in ET.fromstring(pictures[0]).iter("{http://www.w3.org/2000/svg}text")]
    assert {"jumped", "fox"} <= set(words) and words[-1].startswith("attn self")
    with opened.page.expect_download() as waiting:
        opened.page.click("#save-png")
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    # A picture of many words names them at its edges.
    words = [f"w{n}" for n in range(70)]
    opened.make("self", " ".join(words), "-e", "random", "-f", "page")
    for edge in ("rows", "columns"):
        assert opened.page.locator(f".edge.{edge} span").all_inner_texts() == words[::3]


LINES = """
cross she 'likes hot coffee' | masked 'she likes coffee' --pad 2 --pad-side left
self 'she likes coffee' -p roles-deep | self 'she likes coffee' -e random --heads 2 --positions sinusoidal
explain 'she likes coffee' --without she --score cosine | self 'she likes coffee' --head mean
"""


@pytest.mark.parametrize("args", commands(LINES), ids=" ".join)
@like_cases
def test_each_command_writes_a_page_with_its_own_numbers(opened, args):
    opened.make(*args, "-f", "page")
    (command, *rest), saved = shown(opened)
    assert same(saved, record(*args)) and command == ("self" if args[0] == "explain" else args[0])
    assert same(record(command, *(word for word in rest if word != "--")), record(*args))


def test_a_model_s_page_has_every_layer_and_head_and_a_mask_above_others_computes_from_numbers(
    opened, tokenizers, tmp_path
):
    opened.make("page", "she likes coffee", "-p", "roles-deep", link="#view=head")
    assert opened.text("#command").startswith("attn self --projection roles-deep")
    # attn self --mask causal masks the layers below as well
    opened.page.select_option("#mask-choice", "causal")
    assert opened.text("#command") == "attn compute attn-numbers.json"
    assert same(opened.record(), computed(opened.saved("save-numbers")))
    opened.make("page", "dabca", "-m", str(small_gpt2(tmp_path / "gpt2")))
    tiles = opened.page.locator("#grid button")
    assert tiles.count() >= 2
    for n in range(tiles.count()):
        tiles.nth(n).click()
        args, saved = shown(opened)
        expected = record(*args)
        assert {"--model", "--layer"} <= set(args) and same(saved, expected, FLOAT32)
        (head,) = (head for head in saved["heads"] if head["name"] == saved["head"])
        for name in ("scores", "scaled_scores", "output"):
            assert np.allclose(head[name], expected["heads"][0][name], rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize("layer", [None, "all", "mean", "0"])
def test_a_page_of_saved_layers_has_them_all_or_their_mean(opened, tmp_path, layer):
    weights = np.random.default_rng(0).dirichlet([1.0] * 4, (3, 2, 4))
    np.savez(tmp_path / "w.npz", attentions=weights, tokens=[*"abcd"])
    option = [] if layer is None else ["--layer", layer]
    opened.make("show", str(tmp_path / "w.npz"), *option, "-f", "page", link="#view=head")
    assert opened.page.locator("#grid button").count() == (2 if layer == "mean" else 6)
    expected = {"mean": weights.mean(axis=0), "0": weights[0]}.get(layer, weights[2])
    found = [head["weights"] for head in opened.record()["heads"]]
    assert np.allclose(found, expected, rtol=0, atol=1e-6)
