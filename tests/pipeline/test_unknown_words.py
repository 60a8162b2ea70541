"""Words without a vector: what is said of them is what is done with them."""

import numpy as np
import pytest

from attn_cli import Settings, trace_cross, trace_self


def note(trace):
    (found,) = [note for note in trace.notes if note.startswith("No vector for")]
    return found


@pytest.mark.parametrize("projection", ["roles", "roles-deep"])
def test_unknown_words_that_start_alike_are_named_and_no_others(projection):
    trace = trace_self("grumf 中文 zwunt 日本 the", Settings(projection=projection))
    assert trace.unknown == ("grumf", "中文", "zwunt", "日本")
    assert note(trace).endswith(
        "features of their spelling (shape, endings), which are the same for 中文 and 日本."
    )


def test_words_that_are_named_have_equal_vectors_and_the_others_have_not():
    trace = trace_self("grumf 中文 zwunt 日本 ㊗ ㊙", Settings(tokenizer="whitespace"))
    told = note(trace).partition("the same for ")[2].rstrip(".").replace(" and ", " ").replace("; for", "")
    for i, one in enumerate(trace.query_tokens):
        for j in range(i):
            is_same = np.array_equal(trace.x_query[i], trace.x_query[j])
            assert is_same == (one in told and trace.query_tokens[j] in told and i // 4 == j // 4)


def test_the_words_of_both_texts_are_compared():
    trace = trace_cross("日本 cats", "中文 dogs", Settings())
    assert "which are the same for 日本 and 中文." in note(trace)


def test_one_unknown_word_and_unequal_ones_are_not_said_to_be_the_same():
    for text, whose in (("the grumf sat", "its"), ("the grumf zwunt sat", "their")):
        assert note(trace_self(text, Settings())).endswith(
            f"builds a vector from features of {whose} spelling (shape, endings)."
        )


def test_with_zeros_nothing_is_said_of_spelling():
    for oov in ("zero", "random"):
        assert "spelling" not in note(trace_self("the 中文 日本 sat", Settings(oov=oov)))


def test_a_crowd_of_words_that_start_alike_is_counted():
    words = " ".join(map(chr, range(0x4E00, 0x4E00 + 12)))
    assert note(trace_self(f"the {words}", Settings())).endswith(" and 4 more.")
