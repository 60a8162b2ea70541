"""Words without a vector: what is said of them is what is done with them."""

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_self

PLAIN = Settings()
CROWD = "the " + " ".join(map(chr, range(0x4E00, 0x4E00 + 12)))


def note(trace):
    (found,) = [note for note in trace.notes if note.startswith("No vector for")]
    return found


def test_eight_words_without_a_vector_are_named_and_of_more_the_first_eight():
    words = [f"grumf{letter}" for letter in "abcdefghi"]
    eight, nine = (note(trace_self(" ".join(some), Settings(oov="random"))) for some in (words[:8], words))
    assert eight.startswith(f"No vector for {', '.join(words[:8])}: ")
    assert nine.startswith(f"No vector for {', '.join(words[:8])}, ...: ")


@pytest.mark.parametrize(
    ("text", "settings", "end"),
    [
        ("grumf 中文 zwunt 日本 the", Settings(projection="roles"), "the same for 中文 and 日本."),
        ("grumf 中文 zwunt 日本 the", Settings(projection="roles-deep"), "the same for 中文 and 日本."),
        ("the grumf sat", PLAIN, "builds a vector from features of its spelling (shape, endings)."),
        ("the grumf zwunt sat", PLAIN, "builds a vector from features of their spelling (shape, endings)."),
        (CROWD, PLAIN, " and 4 more."),
        ("the 中文 日本 sat", Settings(oov="zero"), ": zeros stand in."),
        ("the 中文 日本 sat", Settings(oov="random"), ": random vectors stand in."),
    ],
)
def test_unknown_words_that_start_alike_are_named_and_no_others(text, settings, end):
    assert note(trace_self(text, settings)).endswith(end)


def test_words_that_are_named_have_equal_vectors_and_the_others_have_not():
    trace = trace_self("grumf 中文 zwunt 日本 ㊗ ㊙", Settings(tokenizer="whitespace"))
    told = note(trace).partition("the same for ")[2].rstrip(".").replace(" and ", " ").replace("; for", "")
    for i, one in enumerate(trace.query_tokens):
        for j in range(i):
            is_same = np.array_equal(trace.x_query[i], trace.x_query[j])
            assert is_same == (one in told and trace.query_tokens[j] in told and i // 4 == j // 4)
    both = trace_cross("日本 cats", "中文 dogs", Settings(projection="roles"))
    assert both.unknown == ("日本", "中文") and "which are the same for 日本 and 中文." in note(both)
