"""Tokenizers: what the design says of words, and that nothing is lost, at any length."""

from collections import Counter
from unicodedata import category

import pytest
from hypothesis import example, given, settings, strategies as st

from attn_cli.text.tokenize import tokenize
from attn_cli.text.written import CAPITAL, CAPITALS, SMALL, cased, in_writing
from tests.cli.tables import apart, pairs
from tests.shell import python
from tests.thorough import IS_THOROUGH, often, takes_long

laws = settings(max_examples=often(200), deadline=None, derandomize=True)
often_met = st.sampled_from("aB9'’-.,_ \n\u0301\u200d\ufe0f👩👍🏽🇬🇧$€n't")
any_text = st.text(st.characters(exclude_categories=()) | often_met)


def words(text, **options):
    return list(tokenize(text, **options).tokens)


WHOLE = """
The quick brown fox | e-mail | 3.14 | U.S | 1,000,000.50 | snake_case | o'clock o’clock | The THE the
naïve Straße 東京 привет שלום | re\u0301sume\u0301 | नमस्ते दुनिया | 4th x2 COVID-19
"""


def test_a_word_is_a_run_of_letters_digits_and_marks_with_signs_only_inside_and_its_case_is_kept():
    for text in apart(WHOLE):
        assert words(text) == words(text, keep_punctuation=True) == text.split()
    for keep in (False, True):  # a control is no punctuation that could be kept
        assert tokenize("a\x1cb\x07", keep_punctuation=keep) == (("a", "b"), ("\x1c", "\x07"))


CLITICS = """
don't => do n't | can't won't => ca n't wo n't | fox's => fox 's | couldn't've => could n't 've | 's s' n't => s s n't
we'll they're I've I'm she'd => we 'll they 're I 've I 'm she 'd | don’t fox’s we’ll => do n’t fox ’s we ’ll
DON'T FOX'S => DO N'T FOX 'S | mother-in-law's => mother-in-law 's | dogs' O'Brien's => dogs O'Brien 's
"""
SYMBOLS = """
5€ $5 => 5 € $ 5 | a+b=c => a + b = c | I ❤️ you👍🏽! => I ❤️ you 👍🏽 | ^^ => ^ ^
👨‍👩‍👧‍👦😀😀 => 👨‍👩‍👧‍👦 😀 😀 | 🇬🇧🇫🇷 => 🇬🇧 🇫🇷 | 1️⃣ ©2026 20°C => 1️⃣ © 2026 20 ° C
"""


@pytest.mark.parametrize(
    ("text", "cut"), [*pairs(CLITICS).items(), *pairs(SYMBOLS).items(), ("x<y|z", "x < y | z")]
)
def test_english_clitics_are_split_off_as_treebanks_do_and_symbols_stand_alone(text, cut):
    assert words(text) == cut.split()
    if text not in CLITICS:
        assert tokenize(text).dropped == (("!",) if "!" in text else ())


PUNCTUATED = """
Manchester United hopes to perform better. => 6 . | Well, (yes) -- no?! => 3 , ( ) -- ? ! | 。、「」 => 0 。 、 「 」
“Quoted” … «dots» => 2 “ ” … « » | 'tis 'so' => 2 ' ' ' | -5 .5 _x_ end... => 4 - . _ _ ...
#tag @me 5% a/b & c*d => 7 # @ % / & * | wow!! what?? **so** 2=2 => 6 !! ?? ** **
"""


@pytest.mark.parametrize(("text", "told"), pairs(PUNCTUATED).items())
def test_other_punctuation_is_dropped_and_listed_or_kept_where_it_stood(text, told):
    """What is told is how many tokens there are, and what is dropped."""
    found, (count, *dropped) = tokenize(text), told.split()
    assert (len(found.tokens), [*found.dropped]) == (int(count), dropped)
    kept = tokenize(text, keep_punctuation=True)
    assert kept.dropped == ()
    assert "".join(kept.tokens) == "".join(text.split())
    assert Counter(kept.tokens) == Counter(found.tokens) + Counter(found.dropped)


@pytest.mark.parametrize("tokenizer", ["words", "whitespace", "characters"])
def test_white_space_alone_holds_no_token(tokenizer):
    assert words(" It's\t(all)\nthere.\u3000:-) ", tokenizer="whitespace") == [
        "It's",
        "(all)",
        "there.",
        ":-)",
    ]
    for text in ("", " ", "\t\n\u2003\u3000", "\u2028\u2029"):
        assert tokenize(text, tokenizer, keep_punctuation=True) == ((), ())


def squeezed(text):
    """Return the text without its spaces; the controls that Python counts as space are none."""
    return "".join(char for char in text if not char.isspace() or char in "\x1c\x1d\x1e\x1f\x85")


@laws
@given(any_text)
@example("a\u200db \ud800 x\u00adx \x1c\x1f\x85 \ue000\u0378")
def test_all_but_white_space_is_a_token_in_its_place_or_dropped_and_letters_marks_and_symbols_are_not(text):
    for keep in (False, True):
        found = tokenize(text, keep_punctuation=keep)
        assert Counter("".join(found.tokens + found.dropped)) == Counter(squeezed(text))
        kinds = {category(char) for char in "".join(found.dropped)}
        assert not kinds & {"Co", "Cn"} and not [kind for kind in kinds if kind[0] in "LNS"]
    at = 0
    for token in tokenize(text).tokens:
        assert token and not any(map(str.isspace, token))
        at = text.index(token, at) + len(token)
    found, kept = tokenize(text), tokenize(text, keep_punctuation=True)
    assert Counter(kept.tokens) + Counter(kept.dropped) == Counter(found.tokens) + Counter(found.dropped)
    fewer, more = ([token for token in one.tokens if token not in found.dropped] for one in (found, kept))
    assert fewer == more


CLUSTERS = """
a b. => a b . | e\u0301a => e\u0301 a | 👨‍👩‍👧‍👦👍🏽❤️🇬🇧🇫🇷 => 👨‍👩‍👧‍👦 👍🏽 ❤️ 🇬🇧 🇫🇷 | กำ => กำ
\u1112\u1161\u11ab한 => \u1112\u1161\u11ab 한
"""


@pytest.mark.parametrize(("text", "clusters"), [*pairs(CLUSTERS).items(), ("a\r\nb\u3000c", "a b c")])
def test_a_character_is_a_grapheme_cluster(text, clusters):
    assert words(text, tokenizer="characters") == clusters.split()


@laws
@given(any_text)
def test_whitespace_and_characters_leave_out_white_space_alone(text):
    found = tokenize(text, "whitespace")
    assert found.dropped == () and "".join(found.tokens) == squeezed(text)
    text = text.encode("utf-8", "ignore").decode()  # no half characters
    found = tokenize(text, "characters")
    assert found.dropped == () and squeezed("".join(found.tokens)) == squeezed(text)


SLOW = (
    *('"\'" * N', '"\\u0301" * N', '"a" + "\\u0301" * N', '"a\'" * (N // 2)', '"a" + "\'s" * (N // 2)'),
    *('"n\'t" * (N // 3)', '"a-._" * (N // 4)', '"a" * N + "\'"', '"\\u200d" * N'),
    *('"\\U0001f468\\u200d" * (N // 7)', '"\\U0001f1ec" * (N // 4)'),
    '"".join(map(chr, range(0x40000, 0xbffff, 2)[: N // 2]))',
)


@takes_long
@pytest.mark.parametrize("tokenizer", ["words", "characters"])
def test_a_megabyte_meant_to_be_slow_is_cut_in_a_moment(tokenizer):
    lines = ["from attn_cli.text.tokenize import tokenize", f"N = {10**6 if IS_THOROUGH else 2 * 10**5}"]
    lines += [f"print({text!r}, flush=True); tokenize({text}, {tokenizer!r})" for text in SLOW]
    ran = python("\n".join(lines), timeout=120)  # quadratic takes hours
    assert ran.code == 0, ran  # the last line printed is the one to blame


# Tokens written as English: spaces, quotes in pairs, capitals; and read again as the same tokens.


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
        ("1903", "was long . the end", " was long. The end"),
        ("1903", ". the end", ". The end"),
        ("", "1,903 well-known men slept .", "1,903 well-known men slept."),
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
