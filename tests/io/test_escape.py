"""What is printed is inert: nothing in it is obeyed, hidden, or sent to another line."""

import json
import shlex
import string
from unicodedata import category

import pytest
from hypothesis import example, given, settings, strategies as st

from attn_cli.errors import HIDDEN, shell_quote, visible
from attn_cli.io.json_text import dumps, json_line
from tests.shell import pasted
from tests.thorough import like_cases, often

laws = settings(max_examples=often(400), deadline=None, derandomize=True)
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ZERO_WIDTH = "\u200b\u200c\u2060\u2061\u2064\ufeff\u180e\u00ad\u034f\u115f\u3164\uffa0"
LINES = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
C0_C1 = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
TAGS = "\U000e0001\U000e0041\U000e007f\U000e0100"
HARMFUL = BIDI + ZERO_WIDTH + LINES + C0_C1 + TAGS + "\ud800\udfff\ufff9\uffff\U0010ffff\ue000"
often_met = st.sampled_from(HARMFUL + "aé❤👩👧☠ \u200d\u200d\ufe0f\ufe0f\u0301")
any_text = st.text(st.characters(exclude_categories=()) | often_met)
printable = st.sampled_from("\u0301\u0327€+😀 " + string.printable[:95])


@laws
@given(any_text)
@example("\x00\ufe0f\u200d❤")
@example("a\u200d❤")
@example("^\u200d^")
def test_nothing_that_is_obeyed_or_unseen_is_left_and_what_is_visible_stays(text):
    shown = visible(text)
    for i, char in enumerate(shown):
        if char == "\u200d":  # it joins two pictures into one, and does nothing else
            for one in (shown[i - 1], shown[i + 1]):
                assert category(one) == "So" or one == "\ufe0f" or "\U0001f3fb" <= one <= "\U0001f3ff"
        else:
            assert category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    assert not set(shown) & set(HARMFUL) and len(shown.splitlines()) <= 1
    assert visible(shown) == shown == shown.encode("utf-8").decode()


@laws
@given(st.text(st.characters(categories=("L", "N", "P")) | printable))
@example("❤️‍🔥 a 👨‍👩‍👧‍👦 b ❤️ b 👍🏽 b 🇬🇧 b 🏳️‍🌈 b 1️⃣ b 👩🏻‍🚀 👩🏽‍🚀 👩🏿‍🚀 c")
def test_letters_digits_punctuation_and_pictures_of_any_script_are_left_as_they_are(text):
    fillers = str.maketrans("", "", "\u034f\u115f\u1160\u3164\uffa0")
    assert visible(text.translate(fillers)) == text.translate(fillers)


@pytest.mark.parametrize("char", HARMFUL + "\t\u00a0\u2003\u202f\u3000")
@like_cases
def test_each_harmful_character_is_spelled_out_between_its_neighbours(char):
    code = ord(char)
    spelled = f"^{chr(code ^ 64)}" if code < 32 or code == 127 else f"<U+{code:04X}>"
    assert visible(f"a{char}b") == f"a{spelled}b"


def test_in_json_a_character_that_is_obeyed_or_unseen_is_its_number_which_means_the_same():
    for char in (one for one in HARMFUL if category(one) in HIDDEN):
        written = '"\\u007f"' if char == "\x7f" else json.dumps(char)
        assert json.loads(written) == char
        for ascii_only in (False, True):
            assert dumps({"a": char}, lines=True, ascii_only=ascii_only) == f'{{"a": {written}}}\n'
            if char not in "\ud800\udfff":
                assert json_line({"a": char}, ascii_only).decode() == f'{{"a":{written}}}\n'
    assert json_line({"é\ud800": "漢"}) == '{"é\ufffd":"漢"}\n'.encode()
    assert json_line({"é": "👍"}, ascii_only=True) == b'{"\\u00e9":"\\ud83d\\udc4d"}\n'
    # It is laid out in lines of 88 characters, numbers as Python writes them.
    assert dumps({"a": "x" * 81}) == f'{{"a": "{"x" * 81}"}}\n'
    assert dumps({"a": "x" * 82, "b": {}}) == f'{{\n  "a": "{"x" * 82}",\n  "b": {{}}\n}}\n'
    rows = [[0.5, 1e-05], [1e-07, 1e16], [0.00012, 5e-324]]
    laid_out = ",\n".join(f"    {row}" for row in rows)
    assert dumps({"rows": rows}) == f'{{\n  "rows": [\n{laid_out}\n  ]\n}}\n'


SHELLS = "fox|-x|=ls|~|a b|the 'cat'|$(touch X) `touch X` $HOME|say \"hi\"|wow!attn|\\|a\\|#|*?[a]{b,c}"
PASTES = "fox\x1b[201~\x15touch X\n|it's\x1b !attn \\|\x9b31m|a\u202eb|a\u2028b|a\u00a0b|\x1b5|\udcff\udc80|e\u0301\x07"

arguments = any_text.map(lambda text: text.replace("\0", "").encode("utf-8", "replace").decode())


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@settings(laws, max_examples=often(20))
@given(st.lists(arguments, min_size=20))
@example([*SHELLS.split("|"), *PASTES.split("|")])
def test_a_word_of_a_command_is_inert_and_bash_reads_it_back(locale, texts):
    for double in (False, True):
        words = [shell_quote(text, double) for text in texts]
        assert all(visible(word) == word for word in words)
        assert pasted([f"attn {word} {word}" for word in words], locale) == [[text, text] for text in texts]


def test_a_word_without_controls_looks_as_one_types_it_and_what_no_argument_can_hold_is_the_sign_for_it():
    for word in ("fox", "the fox", "caf\xe9", "=ls", "=it's", "a=b", "fox's"):
        assert shell_quote(word) == ("'=ls'" if word == "=ls" else shlex.quote(word))
        assert shell_quote(word, double=True) == f'"{word}"'
    assert pasted([f"attn {shell_quote(chr(0) + 'a' + chr(0xD800))}"]) == [["\ufffda\ufffd"]]
