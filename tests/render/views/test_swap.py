"""The screen of attn explain --swap: its size, and sentences whose numbers are the record's."""

import json
import re

import pytest

from tests.shell import here

FOX = "The quick brown fox jumped over the lazy dog"


def screen(*args, width="80", text=FOX):
    ran = here("explain", text, *args, "--width", width)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def key(record, j, row=0):
    return record["swap"]["rows"][row]["keys"][j]


def said(*args):
    """Return the screen as one line, and the record of the same command."""
    return " ".join(screen(*args).split()), json.loads(here("explain", FOX, *args, "-f", "json").out)


@pytest.mark.parametrize("swap", ["fox=rock", "fox=table", "jumped=slept", "dog=cat"])
def test_nine_words_take_24_lines_of_80_columns(swap):
    lines = screen("--swap", swap).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_every_key_has_its_weights_and_terms_in_a_line():
    shown, record = said("--swap", "fox=rock")
    for one in record["swap"]["rows"][0]["keys"]:
        now = "rock " if one["key"] == "fox" else ""
        before, after = one["weights"]
        change = f"{after - before:+.3f}" if abs(after - before) >= 0.0005 else "0.000"
        numbers = f"{before:.3f} {after:.3f} {change} {one['content'][0]:.3f} {one['content'][1]:.3f}"
        assert f"{one['key']} {now}{numbers} {one['distance'][0]:.3f}" in shown


def test_a_word_that_loses_weight_divides_it_into_place_and_content():
    shown, record = said("--swap", "dog=rock")
    one = key(record, 8)
    before, after = one["weights"]
    assert after < before
    assert (
        f'"dog" has {before:.3f} of the attention of "jumped"; "rock", in its place, has {after:.3f}.'
        in shown
    )
    assert f"Content fell from {one['content'][0]:.3f} to {one['content'][1]:.3f}" in shown
    assert f"distance ({one['distance'][0]:.3f}) is the same." in shown
    place, content = one["followed_place"], one["followed_content"]
    followed = f"So {place:.3f} of the weight stays with the place, and {content:.3f} goes with the content"
    assert f'{followed} of "dog".' in shown
    assert record["summary"] in shown


def test_a_word_that_gains_weight_keeps_all_with_the_place():
    shown, record = said("--swap", "fox=rock")
    before, after = key(record, 3)["weights"]
    assert after > before
    gain = f'the content of "rock" brings {after - before:.3f} more'
    assert f'So all of the {before:.3f} stays with the place: "rock" gets it too, and {gain}.' in shown


def test_without_a_distance_term_content_alone_is_said():
    shown, record = said("--swap", "fox=rock", "-p", "identity")
    before, after = key(record, 3)["weights"]
    end = f"content alone made the {before:.3f}, and content alone makes the {after:.3f}."
    assert f"There is no distance term: {end}" in shown
    assert "distance" not in re.sub("no distance term", "", shown)


def test_where_layers_below_mix_words_the_distance_changes_too():
    shown, record = said("--swap", "fox=rock", "-p", "roles-deep")
    before, after = key(record, 3)["distance"]
    assert f"distance {'fell' if after < before else 'rose'} from {before:.3f} to {after:.3f}" in shown


def test_a_swapped_query_is_said():
    shown, record = said("--swap", "jumped=slept")
    kept = sum(min(one["weights"]) for one in record["swap"]["rows"][0]["keys"])
    assert '"slept" looks in the place of "jumped"' in shown
    assert f"{kept:.3f} of the weight stays where it was" in shown


def test_a_masked_key_and_a_mean_are_said():
    assert 'The mask hides "dog" from "fox"' in said("--swap", "dog=cat", "--mask", "causal", "-q", "fox")[0]
    assert "The mean of heads has no scores" in said("--swap", "fox=rock", "--head", "mean")[0]


def test_the_strongest_of_several_places_is_told_and_several_rows_have_a_heading_each():
    text = "the cat and the cat saw the dog"
    shown = " ".join(screen("--swap", "cat=fox", "-q", "saw", text=text).split())
    (row,) = json.loads(here("explain", text, "--swap", "cat=fox", "-q", "saw", "-f", "json").out)["swap"][
        "rows"
    ]
    first, second = (row["keys"][j]["weights"] for j in (1, 4))
    before, after = max(first, second, key=max)
    assert f'"cat" (the strongest of 2 places) has {before:.3f} of' in shown and f"has {after:.3f}." in shown
    assert f"{before:.3f}" not in [f"{weight:.3f}" for weight in min(first, second, key=max)]
    rows = screen("--swap", "dog=fox", "-q", "cat", text=text)
    assert rows.count("What does") == 2 and 'What does "cat" (4) look at?' in rows


def test_a_long_row_shows_its_strongest_keys_and_always_those_swapped():
    text = " ".join(["the quick brown fox jumped over the lazy dog and ran away"] * 3)
    shown = screen("--swap", "lazy=tall", "-q", "3", text=text)
    assert shown.count(" tall ") == 3 and "24 others" in shown
    assert "34 others" in screen("--swap", "2=tall", "-q", "3", "--top", "2", text=text)


@pytest.mark.parametrize("form", ["html", "svg", "latex", "markdown", "bars"])
def test_other_formats_hold_the_same_sentence(form):
    out = here("explain", FOX, "--swap", "fox=rock", "-f", form).out
    assert "stays with the place" in " ".join(re.sub("<[^>]*>", " ", out).split())


def test_a_hostile_word_is_shown_inertly():
    out = here(
        "explain", "a [red]fox[/red] ran", "--tokenizer", "whitespace", "--swap", "ran=[/b]\x1b[31m"
    ).out
    assert "\x1b" not in out and "[/b]^[[31m" in out
