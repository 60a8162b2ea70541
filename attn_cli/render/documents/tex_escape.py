r"""Text and arithmetic in LaTeX's plain ASCII: nothing in a text is obeyed as a command.

What every LaTeX can show is written with its own commands: é is `\'{e}`. What only some can show goes through
`\attnletter` and `\attnchar` (HELPERS), which spell it out as U+4F60 where the current font has no such character.
"""

from __future__ import annotations

import re
from unicodedata import normalize

from attn_cli.errors import visible

LONGEST = 20  # characters of a word that stay together

# Numbers in decimal: a hexadecimal one needs ", which German babel turns into a command.
HELPERS = r"""
\providecommand{\attnspelt}[1]{{\scriptsize U+#1}\allowbreak}
\providecommand{\attnchar}[2]{\ifdefined\Umathcode\iffontchar\font#2 \char#2 \else\attnspelt{#1}\fi
  \else\attnspelt{#1}\fi}
\providecommand{\attnletter}[3]{\ifdefined\Umathcode\attnchar{#1}{#2}\else
  \ifcsname T@T1\endcsname{\fontencoding{T1}\selectfont#3}\else\attnspelt{#1}\fi\fi}
""".strip()
_SPECIAL = {char: rf"\{char}" for char in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\ttfamily\char34}",  # straight in every encoding, and no command of babel's
}
_MARKS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0323\u0331"
_ACCENTS = dict(zip(_MARKS, "`'^~=u.\"rHvcdb", strict=True))


def _pairs(text: str) -> dict[str, str]:
    return {item[0]: item[2:] for item in text.split()}


_LETTERS = _pairs(
    "ß:ss æ:ae Æ:AE œ:oe Œ:OE ø:o Ø:O ł:l Ł:L ı:i ȷ:j –:textendash —:textemdash ‘:textquoteleft ’:textquoteright "
    "“:textquotedblleft ”:textquotedblright …:dots ¡:textexclamdown ¿:textquestiondown £:pounds §:S ¶:P †:dag ‡:ddag"
)
_OF_T1 = _pairs(
    "ð:dh Ð:DH đ:dj Đ:DJ þ:th Þ:TH ŋ:ng Ŋ:NG ą:k{a} Ą:k{A} ę:k{e} Ę:k{E} «:guillemotleft »:guillemotright "
    "‹:guilsinglleft ›:guilsinglright „:quotedblbase ‚:quotesinglbase €:texteuro ©:textcopyright ®:textregistered "
    "™:texttrademark ¢:textcent ¥:textyen ¤:textcurrency ¦:textbrokenbar"
)
_MATH = _pairs(
    r"×:\times ·:\cdot ÷:\div ±:\pm −:- ¬:\neg √:\surd ∞:\infty →:\to ←:\leftarrow ≤:\leq ≥:\geq ≠:\neq ≈:\approx "
    r"∈:\in °:{}^\circ µ:\mu ²:{}^2 ³:{}^3 ¹:{}^1 ᵀ:{}^\top ½:\frac12 ¼:\frac14 ¾:\frac34 ª:{}^{\mathrm{a}} "
    r"º:{}^{\mathrm{o}} Γ:\Gamma Δ:\Delta Θ:\Theta Λ:\Lambda Ξ:\Xi Π:\Pi Σ:\Sigma Υ:\Upsilon Φ:\Phi Ψ:\Psi Ω:\Omega "
    r"Α:\mathrm{A} Β:\mathrm{B} Ε:\mathrm{E} Ζ:\mathrm{Z} Η:\mathrm{H} Ι:\mathrm{I} Κ:\mathrm{K} Μ:\mathrm{M} "
    r"Ν:\mathrm{N} Ο:\mathrm{O} Ρ:\mathrm{P} Τ:\mathrm{T} Χ:\mathrm{X} α:\alpha β:\beta γ:\gamma δ:\delta "
    r"ε:\varepsilon ζ:\zeta η:\eta θ:\theta ι:\iota κ:\kappa λ:\lambda μ:\mu ν:\nu ξ:\xi ο:o π:\pi ρ:\rho "
    r"ς:\varsigma σ:\sigma τ:\tau υ:\upsilon φ:\varphi χ:\chi ψ:\psi ω:\omega"
)
_OVER_MATH = {"\u0301": r"\acute", "\u0300": r"\grave", "\u0308": r"\ddot"}

# -- becomes a dash and ?` another mark: a kern keeps them apart. An accent that LaTeX can set stays with its letter.
_CHARACTER = re.compile(
    rf"(?P<kern>(?<=[-'`,?!])(?=[-'`,?!]))?(?P<char>[A-Za-z][{''.join(_ACCENTS)}]?|.)", re.S
)


def escape(text: str) -> str:
    r"""Return text as LaTeX that shows it literally.

    >>> escape(r"\input{x}"), escape("100 % -- café")
    ('\\textbackslash{}input\\{x\\}', "100 \\% -\\kern0pt{}- caf\\'{e}")
    """
    found = _CHARACTER.finditer(normalize("NFC", visible(text)))
    return "".join(r"\kern0pt{}" * (one["kern"] is not None) + _one(one["char"]) for one in found)


def prose(text: str) -> str:
    """Return a sentence as LaTeX that shows it literally; a very long word can be broken."""
    pieces = re.sub(rf"(\S{{{LONGEST}}})(?=\S)", "\\1\0", visible(text)).split("\0")
    return r"\allowbreak ".join(map(escape, pieces))


def is_shown(char: str) -> bool:
    """Tell whether every LaTeX shows this character as itself (accents composed)."""
    return not _one(char).startswith((r"\attnchar", r"\attnletter"))


def _one(char: str) -> str:
    if char.isascii():
        return _SPECIAL.get(char, char)
    if char in _LETTERS:
        return f"\\{_LETTERS[char]}{{}}"
    if char in _MATH:
        return f"\\ensuremath{{{_MATH[char]}}}"
    apart = normalize("NFD", char)
    letter, mark = apart[0], apart[1:]
    if letter.isascii() and mark in _ACCENTS:
        dotless = f"\\{letter}" if letter in "ij" and mark not in "\u0327\u0323\u0331" else letter
        return f"\\{_ACCENTS[mark]}{{{dotless}}}"
    if letter in _MATH and mark in _OVER_MATH:
        return f"\\ensuremath{{{_OVER_MATH[mark]}{{{_MATH[letter]}}}}}"
    if char in _OF_T1:
        name = _OF_T1[char]
        return rf"\attnletter{{{ord(char):04X}}}{{{ord(char)}}}{{\{name}{'' if '{' in name else '{}'}}}"
    return "".join(rf"\attnchar{{{ord(c):04X}}}{{{ord(c)}}}" for c in char)


_TOKENS = re.compile(
    r"(?P<root>√\d+)"
    r"|(?P<number>(?<![\w.)\]])-?(?:\d[\d,]*\d|\d)?(?:\.\d+|(?<=\d))(?:e[+-]?\d+)?(?!\w))"
    r"|(?P<name>(?<![\w'])(?:[WbQKVqk]_[a-z]|d_[kv]|[QKVXqkvrxbs])(?=ᵀ?(?![\w'])))"
    r"|(?P<power>(?<![\w'])e\^(?:-?\d+(?:\.\d+)?|x)(?!\w))"
    r"|(?P<function>(?<![\w'])(?:exp|cos|max)(?=\())"
    r"|(?P<sign>->|[=≈+×·/()\[\]–…ᵀ]|(?<= )-(?= ))"
    r"|(?P<gap> {2,})"
    r"|(?P<space> )"
    r"|(?P<word>\w+|.)",
    re.S,
)
_SPACED = {"=", "+", "-", r"\approx", r"\times", r"\cdot", r"\to"}  # signs that bring their own spaces
_OPENS, _CLOSES = {*_SPACED, *"/(["}, {*_SPACED, *"/)]"}
_SIGNS = {"->": r"\to ", "≈": r"\approx ", "×": r"\times ", "·": r"\cdot "}
_SIGNS |= {"ᵀ": r"^{\top}", "…": r"\dots ", "–": r"\text{--}"}


def arithmetic(text: str) -> str:
    r"""Return a formula of attn's in LaTeX: numbers, names and signs in mathematics, words as words.

    >>> arithmetic("weights = softmax(q·k / √4)")
    'weights $=$ softmax$(q\\cdot k/\\sqrt{4})$'
    >>> arithmetic("e^x e^x2")
    '$e^{x}$ e\\textasciicircum{}x2'
    """
    parts, run = list[str](), list[str]()  # and the mathematics since the last word, with the spaces in it
    for match in _TOKENS.finditer(text):
        kind, found = str(match.lastgroup), match[0]
        if kind == "space":
            (run or parts).append(" ")
        elif kind == "word":
            parts += [_in_mathematics(run), escape(found)]
            run = []
        else:
            run.append(_mathematics(kind, found))
    return "".join([*parts, _in_mathematics(run)])


def _in_mathematics(run: list[str]) -> str:
    """Return a run between dollar signs: its spaces become LaTeX's own, and those at its end stay outside."""
    kept = max((n for n, item in enumerate(run, 1) if item != " "), default=0)
    if not kept:
        return ""
    inside, end = "", " " if kept < len(run) else ""
    for n, item in enumerate(run[:kept]):
        if item != " ":
            inside += item
        elif not (run[n - 1].strip() in _OPENS or run[n + 1].strip() in _CLOSES):
            inside += r"\;"
    if kept > 1 and run[kept - 1].strip() in _SPACED:
        inside, end = inside + "{}", ""  # else a sign at the end would stand without its spaces
    return f"${inside.rstrip(' ')}${end}"


def _mathematics(kind: str, found: str) -> str:
    if kind == "number":
        digits, _, power = found.replace(",", "{,}").replace("-", "{-}", found[0] == "-").partition("e")
        return rf"{digits}\cdot 10^{{{int(power)}}}" if power else digits
    if kind == "name":
        letter, _, below = found.partition("_")
        return f"{letter}_{{{below}}}" if below else letter
    forms = {"root": rf"\sqrt{{{found[1:]}}}", "power": f"e^{{{found[2:]}}}", "function": f"\\{found}"}
    return forms.get(kind) or _SIGNS.get(found, r"\quad\allowbreak " if kind == "gap" else found)
