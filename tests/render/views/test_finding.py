"""The first sentence and the last line of a screen: what was found, by the trace's own numbers, and what to type."""

import re
import shlex

import numpy as np
import pytest

from attn_cli import trace_cross, trace_masked, trace_self
from attn_cli.settings import Settings
from tests.shell import here, told

FOX = "The quick brown fox jumped over the lazy dog"
# Options, and where a row's strongest key has to be for the row to count as what the sentence says.
PLACES = {
    "--head previous": ("the word before", lambda i, j: j == i - 1),
    "--head next": ("the word after", lambda i, j: j == i + 1),
    "-p identity": ("themselves", lambda i, j: j == i),
    "": ("a neighbour", lambda i, j: abs(i - j) == 1),
}


def shown(*args):
    return told(*args, "--width", "80").splitlines()


@pytest.mark.parametrize("options", PLACES)
def test_it_says_what_the_row_in_focus_looks_at_most_and_where_most_words_look(options):
    given = shlex.split(options)
    settings = {"--head": "head", "-p": "projection"}
    trace = trace_self(FOX, Settings(**{settings[given[0]]: given[1]} if given else {}))
    (i,), (where, is_there) = trace.focus, PLACES[options]
    j = int(trace.weights[i].argmax())
    key = "itself" if i == j else f'"{trace.key_tokens[j]}"'
    first, _, most = shown("self", FOX, *given)[1].partition("; ")
    assert first.startswith(f'"{trace.query_tokens[i]}" looks most at {key} ({trace.weights[i, j]:.3f}')
    untied = [np.ptp(np.sort(row)[-2:]) > 1e-9 for row in trace.weights]  # "The" and "the" have one vector
    n = sum(is_there(query, int(row.argmax())) for query, row in enumerate(trace.weights) if untied[query])
    assert 2 * n > 9 and most == f"{'all 9' if n == 9 else f'{n} of 9'} words look most at {where}."


def test_words_without_a_choice_are_not_counted_and_across_two_texts_pairs_are_named():
    trace = trace_masked(FOX, Settings(projection="roles"))
    n = sum(int(row.argmax()) == i - 1 for i, row in enumerate(trace.weights) if i)
    masked = " ".join(shown("masked", FOX, "-p", "roles"))
    assert f"; {n} of 8 words with a choice look most at the word before." in masked
    blind = shown("self", FOX, "-q", "fox", "--mask", "window:0", "--without", "fox")
    assert '"fox" may look at nothing.' in blind[1]
    one, other = "A cat sat on the rug", "The feline rested on a mat"
    trace, screen = trace_cross(one, other), " ".join(shown("cross", one, other))
    for query, key in (("cat", "feline"), ("sat", "rested"), ("rug", "mat")):
        i, j = trace.query_tokens.index(query), trace.key_tokens.index(key)
        assert trace.weights[i].argmax() == j
        assert re.search(rf'"{query}" (looks most )?at "{key}" \({trace.weights[i, j]:.3f}\)', screen)
    assert '"on" at' not in screen
    assert all(use in screen for use in ("translation", "image", "decoder"))
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
