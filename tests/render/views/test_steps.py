"""The walk in parts: only some steps, or from a step on."""

import json
import re

import pytest

from attn_cli.trace.steps import NAMES, STEPS, chosen_steps
from tests.shell import here

TEXT = "she likes coffee"


def headings(out):
    return [line for line in out.splitlines() if re.match(r"\d+\. ", line)]


def explain(*options):
    ran = here("explain", TEXT, *options)
    assert ran.code == 0, ran.err
    return ran.out


def test_only_shows_these_steps_with_their_own_numbers_and_nothing_around_them():
    whole, part = explain("--steps"), explain("--only", "softmax,scores")
    titles = [title for title in headings(whole) if "Scores" in title or "Softmax" in title]
    assert headings(part) == titles and len(titles) == 2
    assert "One row by hand" not in part and "Who attends" not in part and "no mask" in part


def test_from_goes_on_to_the_end():
    whole, part = explain("--steps"), explain("--from", "softmax")
    assert headings(part) == headings(whole)[-2:]
    assert "One row by hand" not in part and "Who attends to whom" in part and "How sharp" in part


def test_every_step_has_names_and_every_name_leads_to_its_step():
    assert list(NAMES) == [step.name for step in STEPS]
    names = [name for those in NAMES.values() for name in those]
    assert len(names) == len(set(names))
    for step, those in NAMES.items():
        for name in (*those, step, step.upper()):
            assert chosen_steps(name, None).only == (step,)


@pytest.mark.parametrize("options", [["--only", "scores,nonsense"], ["--from", "[red]"], ["--only", ""]])
def test_a_step_that_there_is_not_is_wrong_usage_and_the_steps_are_named(options):
    ran = here("explain", TEXT, *options)
    assert ran.code == 2 and "softmax" in ran.err and "queries" in ran.err


def test_only_and_from_exclude_each_other():
    assert here("explain", TEXT, "--only", "scores", "--from", "scores").code == 2


def test_json_holds_every_step_whatever_is_shown():
    assert json.loads(explain("--only", "scores", "-f", "json"))["heads"][0]["q"]


def test_a_walk_of_one_row_shows_the_steps_that_are_asked_for():
    assert len(headings(explain("-q", "likes", "--only", "scores"))) == 1


def test_a_step_that_is_not_there_is_told_to_be_missing_and_why():
    assert "there is no mask" in explain("--only", "mask")
    assert "--positions sinusoidal" in explain("--only", "positions")
    assert "no mask is on" not in explain("--from", "scores")


def test_a_temperature_is_shown_as_it_was_typed_and_divides_a_learned_position_too():
    out = explain("-t", "0.00964", "--steps")
    assert "softmax((q·k / √32 + distance) / 0.00964)" in out


@pytest.mark.parametrize("format", ["bars", "csv", "code:numpy"])
def test_steps_of_the_walk_in_a_format_that_has_no_walk_are_wrong_usage(format):
    ran = here("explain", TEXT, "--only", "scores", "-f", format)
    assert ran.code == 2 and "--only has no " in ran.err
