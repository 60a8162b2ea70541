"""The first sentence and the last line of a screen: what was found, by the trace's own numbers, and what to type."""

import re
import shlex

import numpy as np
import pytest

from attn_cli import trace_cross, trace_self
from attn_cli.settings import Settings
from tests.shell import here, told

FOX = "The quick brown fox jumped over the lazy dog"


def shown(*args):
    return told(*args, "--width", "80").splitlines()


@pytest.mark.parametrize(("head", "step", "where"), [("previous", -1, "before"), ("next", 1, "after")])
def test_it_says_what_the_row_in_focus_looks_at_most_and_where_most_words_look(head, step, where):
    trace = trace_self(FOX, Settings(head=head))
    (i,), words, strongest = trace.focus, FOX.split(), trace.weights.argmax(axis=1)
    said = f'"{words[i]}" looks most at "{words[strongest[i]]}" ({trace.weights[i].max():.3f}); '
    n = (strongest == np.arange(9) + step).sum()
    assert shown("self", FOX, "--head", head)[1] == f"{said}{n} of 9 words look most at the word {where}."


def test_words_without_a_choice_are_not_counted_and_across_two_texts_pairs_are_named():
    assert '"on" at' not in " ".join(shown("cross", "A cat sat on the rug", "The feline rested on a mat"))
    one, other = "the cat sat", "the dog sat"
    trace = trace_cross(one, other, Settings(projection="identity"))
    assert (trace.weights.argmax(axis=1) == range(3)).all()
    assert "; 2 of 3 words look most at the same word." in shown("cross", one, other, "-p", "identity")[1]
    screen = shown("cross", "the dog and the dog saw the boat", "a ship and a puppy")[1]
    assert screen.count('"dog"') == screen.count('at "puppy"') == 1


@pytest.mark.parametrize("command", [["self"], ["masked"], ["cross", "a dog"]])
def test_a_screen_ends_with_at_most_two_commands_that_run(command):
    last = " ".join(shown(*command, FOX)).partition("Next: ")[2]
    named = re.findall(r"attn ([a-z]+)([^(]*)\(", last)
    assert 1 <= len(named) <= 2
    for name, rest in named:
        words = rest.replace("CONTEXT", '"a dog"').replace("TEXT", f'"{FOX}"')
        assert here(name, *shlex.split(words)).code == 0
    assert "Next:" not in here(*command, FOX, "-f", "markdown").out
