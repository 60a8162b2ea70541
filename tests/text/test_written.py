"""Tokens written as English: spaces, quotes in pairs, capitals; and read again as the same tokens."""

from __future__ import annotations

import pytest

from attn_cli.text.tokenize import tokenize
from attn_cli.text.written import CAPITAL, CAPITALS, SMALL, cased, in_writing


@pytest.mark.parametrize(
    ("before", "words", "text"),
    [
        ("The fox", "slept . it woke", " slept. It woke"),
        ("The fox slept.", "it woke ?", " It woke?"),
        ("", "the fox , ( a red one ) , was 90 % asleep", "The fox, (a red one), was 90% asleep"),
        ("He said", ', " do n\'t ! " and " who ? " he asked .', ', "Don\'t!" and "Who?" he asked.'),
        ("", 'he said , " no . " then he slept .', 'He said, "No." Then he slept.'),
        ('He said, "No.', '" then he slept', '" Then he slept'),  # the quote of the text before is closed
        ("", "what ! no ; yes : it 's 3 .", "What! No; yes: it's 3."),
        ("1903", ". the end", ". The end"),
        ("", "( it cost $ 5 . ) it ’s so .", "(It cost $5.) It’s so."),
    ],
)
def test_words_are_written_with_spaces_quotes_and_capitals(before, words, text):
    read = tokenize(before, keep_punctuation=True).tokens
    tokens, said = in_writing(read, words.split())
    assert said == text
    assert [token.lower() for token in tokens] == words.split()
    assert tokenize(before + said, keep_punctuation=True).tokens == (*read, *tokens)


def test_a_word_has_the_capitals_that_it_has_within_a_sentence():
    assert [cased("usa", one) for one in (SMALL, CAPITAL, CAPITALS)] == ["usa", "Usa", "USA"]
    assert cased("i", CAPITAL) == "I" and cased(",", CAPITAL) == ","
