"""Word pieces make words, and attention between words is what attention between their pieces adds up to."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from attn_cli.text import wordpieces as pieces
from tests.cli.tables import apart, pairs

# A scheme, the tokens of a text, and the words.
CASES = """
byte-level => <s> The Ġcaf Ã© Ġun like ly . ĠðŁĺ Ģ </s> => <s> The café unlikely. 😀 </s>
sentencepiece => ▁The ▁na ï ve ▁ cat ▁ <0xF0> <0x9F> <0x98> <0x80> </s> => The naïve cat 😀 </s>
continued => un@@ like@@ ly @@ cats </s> => unlikely @@ cats </s>
ended => <|startoftext|> a</w> caf Ã©</w> un like ly</w> ðŁĺ Ģ</w> <|end|> => <|startoftext|> a café unlikely 😀 <|end|>
wordpiece => [CLS] the walk ##ing ##s ## [MASK] don ' t [SEP] [PAD] => [CLS] the walkings ## [MASK] don ' t [SEP] [PAD]
"""


def names(tokens):
    return [word.name for word in pieces.words(tokens, pieces.scheme(tokens))]


@pytest.mark.parametrize("case", apart(CASES))
def test_pieces_are_joined_as_their_marks_say(case):
    (scheme,), tokens, expected = (text.split() for text in case.split(" => "))
    assert pieces.scheme(tokens) == scheme and names(tokens) == expected
    made = pieces.words(tokens, scheme)
    assert [word.start for word in made] == list(np.cumsum([0, *(word.size for word in made)])[:-1])
    assert sum(word.size for word in made) == len(tokens)


# Tokens without marks are words; a piece never joins a special token. A heading's mark is no wordpiece; a line ends a
# word; XLM's letters are no bytes; bytes that are no text are spelled out; blank tokens keep a name that can be seen.
ODD = """
un believ able => un believ able | ðŁĺ Ģ 汉 => ðŁĺ Ģ 汉 | <s> [CLS] => <s> [CLS]
[CLS] ##ing the ##m [SEP] ##s => [CLS] ##ing them [SEP] ##s | <\uff5cbegin▁\uff5c> ▁a b => <\uff5cbegin▁\uff5c> ab
<|endoftext|> The Ġcat <|endoftext|> s => <|endoftext|> The cat <|endoftext|> s
### ĠTitle Ġof ĠÅ ģ => ### Title of Ł | Hi Ċ The Ġcat ĊĊ sat => Hi Ċ The cat ĊĊ sat | ▁a <0x0A> b => a <0x0A> b
▁a ▁▁▁ ▁b => a ▁▁▁ b | <s> dé jà</w> vu</w> </s> => <s> déjà vu </s> | Ж ук</w> => Жук | a</w> </w> => a </w>
ĠÃ Ġcat => <0xC3> cat | ▁x ▁ <0xFF> => x <0xFF> | ▁caf <0xC3> => caf<0xC3> | Ġ汉 Ġcat => Ġ汉 cat | a Ġ Ġb => a Ġ b
ĠcafÃ ĠðŁĺ => caf<0xC3> <0xF0><0x9F><0x98> | <s> ðŁĺ Ģ </s> => <s> 😀 </s> | <s> ð Ł ĺ Ģ </s> => <s> 😀 </s>
<s> <0xF0> <0x9F> <0x98> <0x80> </s> => <s> 😀 </s> | Hi ĉa čb ċc Čd => Hi a b c d
"""


@pytest.mark.parametrize(("tokens", "joined"), pairs(ODD).items())
def test_odd_pieces_are_joined_as_a_reader_expects(tokens, joined):
    assert names(tokens.split()) == joined.split()


def test_spaces_and_lines_are_joined_as_a_reader_expects_and_byte_level_tokens_are_the_bytes_that_they_are():
    gemma = ["<bos>", "▁a", "\n", "b", "c", "\n\n", "▁▁", "d"]
    assert names(gemma) == ["<bos>", "a", "\n", "bc", "\n\n", "d"]
    assert names(["a", "  ", " b"]) == ["a", "␣␣", "b"]
    assert names(["The", " cat", "s", " sat", "\n", "On"]) == ["The", "cats", "sat", "\n", "On"]
    texts = {"Ã©": "é", "âĢĻ": "’", "âĢĶ": "—", "âĤ¬": "€", "æ±ī": "汉", "ÂŃx": "\u00adx", "Åģ": "Ł"}
    for token, text in texts.items():  # as they stand in GPT-2's vocabulary
        assert names(["Ġx", f"Ġ{token}", "y"]) == ["x", f"{text}y"]


FRAMING = "[CLS] [SEP] [PAD] <s> </s> <pad> <cls> <sep> <bos> <eos> <eod> <start_of_turn> <end_of_turn>"
FRAMES = [*FRAMING.split(), "<|endoftext|>", "<|im_start|>", "<\uff5cend\uff5c>", "<|pad|>"]
STANDING_IN = "[UNK] [MASK] <unk> <mask> <extra_id_07>"
WORDS = [*f"{STANDING_IN} cat pad [ < <| s <b> [red]".split(), ""]


def test_what_frames_a_text_is_special_and_what_stands_for_a_word_is_not():
    assert [token for token in (*FRAMES, *WORDS) if pieces.is_special(token)] == FRAMES
    assert [token for token in (*FRAMES, *WORDS) if pieces.is_padding(token)] == ["[PAD]", "<pad>", "<|pad|>"]
    for token in (*FRAMES, *STANDING_IN.split()):
        found = pieces.words(["▁a", token, "b"], "sentencepiece")
        assert [word.name for word in found] == ["a", token, "b"]
        assert [word.is_special for word in found] == [False, token in FRAMES, False]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_joining_is_a_sum_over_keys_and_a_mean_over_queries_and_keeps_the_sum_of_rows(seed, sizes, data):
    others = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    runs = (sizes, others)
    queries, keys = ([pieces.Word(str(n), sum(run[:n]), run[n]) for n in range(len(run))] for run in runs)
    weights = np.random.default_rng(seed).dirichlet([1.0] * sum(others), (2, sum(sizes)))
    joined = pieces.join(weights, queries, keys)
    assert joined.shape == (2, len(sizes), len(others))
    np.testing.assert_allclose(joined.sum(axis=-1), 1)
    for a, query in enumerate(queries):
        for b, key in enumerate(keys):
            part = weights[:, query.start : query.start + query.size, key.start : key.start + key.size]
            np.testing.assert_allclose(joined[:, a, b], part.sum(axis=(1, 2)) / query.size)


def test_a_word_may_look_where_any_of_its_pieces_may_so_that_causal_stays_causal():
    words = [pieces.Word("a", 0, 2), pieces.Word("b", 2, 1), pieces.Word("c", 3, 3)]
    joined = pieces.join_mask(np.tri(6, dtype=bool), words, words)
    np.testing.assert_array_equal(joined, np.tri(3, dtype=bool))
    window = np.abs(np.subtract.outer(range(6), range(6))) <= 1
    expected = [[True, True, False], [True, True, True], [False, True, True]]
    assert pieces.join_mask(window, words, words).tolist() == expected
