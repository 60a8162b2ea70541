"""Regular expressions of public tokenizers: those that read any text in a time that grows as the text does."""

from __future__ import annotations

import re
from functools import lru_cache

_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD = r"[^\r\n\p{L}\p{N}]?"
_LONGEST = 1000  # characters; sound ones have three hundred

# Alternatives that may stand in any order and number. Each takes what it has looked at, or fails within a few letters;
# what does neither (\s*[\r\n]+, the capitals of o200k) stands with the alternative that then takes the whole run.
ALTERNATIVES = (
    r"<\|startoftext\|>|<\|endoftext\|>",  # CLIP
    *(_ENDS, r"'s|'t|'re|'ve|'m|'ll|'d", r"'(?i:[sdmt]|ll|ve|re)"),  # Llama 3, Qwen; GPT-2; cl100k
    *(rf"{_WORD}\p{{L}}+", rf"{_WORD}+\p{{L}}+"),  # Llama 3, Qwen; cl100k
    rf"{_WORD}[\p{{L}}\p{{M}}]+",  # Qwen 3.5
    *(r" ?\p{L}+", r"[\p{L}]+", r"\s?\p{L}+"),  # GPT-2; CLIP; DeepSeek Coder
    rf"{_WORD}{_UPPER}*{_LOWER}+{_ENDS}?|{_WORD}{_UPPER}+{_LOWER}*{_ENDS}?",  # o200k: GPT-OSS, Llama 4
    rf"{_WORD}{_UPPER}*{_LOWER}+|{_WORD}{_UPPER}+{_LOWER}*",  # Mistral, Nemotron
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",  # DeepSeek V3, and the next two
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    *("[一-龥぀-ゟ゠-ヿ]+", "[一-龥ࠀ-一가-퟿]+", r"[\p{Han}]+"),  # DeepSeek; Kimi
    *(r"\p{N}", r"\p{N}{1,2}", r"\p{N}{1,3}", r"\p{N}+", r" ?\p{N}+", r"[\p{N}]"),
    *(r"[0-9]", r"[0-9][0-9][0-9]", r"\d", r"\d+"),  # Falcon
    *(r" ?[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{N}]+", r"\s?\p{P}+"),  # GPT-2; CLIP; DeepSeek Coder
    *(r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]++[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"),
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",  # Qwen 3.5
    " ?[^(\\s|[.,!?…。，、।۔،])]+",  # BLOOM
    *(r"\s*[\r\n]+|\s+(?!\S)|\s+", r"\s*[\r\n]|\s+(?!\S)|\s+", r"\s+(?!\S)|\s+"),
    *(r"\s+", r"\s", r"[\r\n]", r"\n", r"[\n\r\t]", r" ", r".", r"\w+|[^\w\s]+"),
    *(r" {2,}", r"\s{2,}"),  # as normalizers: T5, ALBERT and XLM-R; DeBERTa
)


def is_known(expression: object) -> bool:
    r"""Tell whether a regular expression is made of known alternatives alone.

    >>> is_known(r"\p{N}{1,3}|\s+"), is_known(r"(a+)+$")
    (True, False)
    """
    if not isinstance(expression, str) or len(expression) > _LONGEST:
        return False
    spelled = expression.replace("\r", r"\r").replace("\n", r"\n")
    return _known().fullmatch(spelled + "|") is not None


@lru_cache
def _known() -> re.Pattern[str]:
    longest_first = sorted(map(re.escape, ALTERNATIVES), key=len, reverse=True)
    return re.compile(rf"(?:(?:{'|'.join(longest_first)})\|)+")
