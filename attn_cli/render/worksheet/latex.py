"""A worksheet as LaTeX: one page of A4 where the exercise is of the usual size, with packages that every TeX has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_cli.io.escape import visible
from attn_cli.render.worksheet.parts import Ask, Code, Heading, Math, Part, Say, Table, Tables, Title, Words

PREAMBLE = r"""\documentclass[a4paper,10pt]{article}
\usepackage[hmargin=17mm,vmargin=11mm]{geometry}
\usepackage{amsmath,array,booktabs}
\pagestyle{empty}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.8mm}
\raggedright
\raggedbottom
% A cell of a table to write in, and a line to write on.
\newcommand{\cell}[1]{\makebox[WIDTH]{STRUT\small #1}}
\newcommand{\answerline}{\par\vspace{3.5mm}\hspace*{5mm}\rule{165mm}{0.2pt}}
\begin{document}"""
ROOMY, LARGE, TIGHT = r"\rule[-2.4mm]{0pt}{6.8mm}", r"\rule[-2.2mm]{0pt}{6.2mm}", r"\rule[-1.2mm]{0pt}{4.3mm}"
_NAMES = ("backslash", "less", "greater", "bar", "asciitilde", "asciicircum", "endash")
_SPECIAL = {
    **{char: f"\\{char}" for char in "#$%&_{}"},
    **{char: f"\\text{name}{{}}" for char, name in zip("\\<>|~^–", _NAMES, strict=True)},
    **{char: f"{{{char}}}" for char in "[]`"},
}
_IN_MATH = {"×": r"\times ", "·": r"\cdot ", "≈": r"\approx ", "ᵀ": r"^{\top}", "–": r"\text{--}"}


def sheet_latex(parts: Iterable[Part]) -> str:
    """Return the sheet as a LaTeX document that needs amsmath, array, booktabs and geometry."""
    parts = list(parts)
    is_blank = any(isinstance(part, Ask) and part.answer is None for part in parts)
    lines = [line for part in parts for line in _lines(part, is_blank)]
    return "\n".join([_preamble(parts, is_blank), *lines, r"\end{document}", ""])


def _preamble(parts: Iterable[Part], is_blank: bool) -> str:
    """Return the preamble, with cells of the size that keeps the sheet on one page."""
    grids = [
        table for part in parts if isinstance(part, Tables) for table in part.tables if not table.is_given
    ]
    is_large = max((len(table.columns) for table in grids), default=0) > 4
    row = TIGHT if not is_blank else LARGE if is_large else ROOMY
    return PREAMBLE.replace("STRUT", row).replace("WIDTH", "10mm" if is_large else "11mm")


def escape(text: str) -> str:
    r"""Return text that LaTeX prints and does not obey; quotation marks become typographic ones.

    A character that the fonts of some TeX may lack is spelled out.

    >>> print(escape('"50 %" of \\input{x}, --key'))
    ``50 \%'' of \textbackslash{}input\{x\}, -{}-key
    """
    shown = re.sub(r'"(.*?)"', "\0\\1\1", visible(text))
    escaped = "".join(_SPECIAL.get(char) or (char if char.isascii() else _spelled(char)) for char in shown)
    escaped = escaped.replace("\0", "``").replace("\1", "''").replace('"', "''")
    return escaped.replace("--", "-{}-")


def formula(text: str) -> str:
    r"""Return a formula in math mode.

    >>> print(formula("e^-0.707 ≈ 0.493"), formula("weights V"), formula("x = Q Kᵀ / √2"))
    $e^{-0.707} \approx 0.493$ $\text{weights }V$ $x = Q K^{\top} / \sqrt{2}$
    """
    text = re.sub(r"[a-z]{2,}( (?=[A-Z]))?", lambda word: rf"\text{{{word[0]}}}", text)
    text = re.sub(r"√(\d+)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^(-?[0-9.]+|[a-z])", r"^{\1}", text)
    return "$" + "".join(_IN_MATH.get(char, char) for char in text).replace("  ", " ") + "$"


def _spelled(char: str) -> str:
    return rf"\texttt{{\textless{{}}U+{ord(char):04X}\textgreater{{}}}}"


def _lines(part: Part, is_blank: bool) -> Iterator[str]:
    match part:
        case Title(text):
            name = r"\hfill Name: \rule{55mm}{0.2pt}" if is_blank else ""
            yield rf"{{\Large\bfseries {escape(text)}}}{name}\par"
        case Heading(text):
            yield rf"\par\smallskip\textbf{{{escape(text)}}}\par"
        case Say(words, quiet):
            yield (rf"{{\footnotesize {_words(words)}\par}}" if quiet else rf"{_words(words)}\par")
        case Tables(tables):
            # A table to read begins with its rule, which needs no room above it.
            is_given = tables[0].is_given
            yield r"\par\vspace{-1.5mm}" if is_given else r"\par\smallskip"
            yield ("\\qquad\n" if is_given else "\\quad\n").join(
                "\n".join(_table(table)) for table in tables
            ) + r"\par\smallskip"
        case Ask(number, question, answer):
            yield rf"{number}. {_words(question)}"
            yield (rf"\quad\emph{{{_words(answer)}}}" if answer else r"\answerline") + r"\par"


def _table(table: Table) -> Iterator[str]:
    title = escape(table.title.partition(":")[0])
    shown = formula(table.formula) if table.formula else ""
    yield r"\begin{tabular}[t]{@{}l@{}}"
    if not table.is_given:
        yield " ".join(filter(None, [rf"\textbf{{{title}}}\ " if title else "", shown])) + r"\\[1mm]"
    yield from _typeset(table, shown) if table.is_given else _grid(table)
    yield r"\end{tabular}"


def _typeset(table: Table, corner: str) -> Iterator[str]:
    """Yield a table to read."""
    yield rf"\begin{{tabular}}[t]{{@{{}}l*{{{len(table.columns)}}}{{r}}@{{}}}}"
    yield rf"\toprule {corner} & {' & '.join(map(_number, table.columns))} \\ \midrule"
    for label, cells in table.rows:
        yield rf"{_label(label)} & {' & '.join(_number(cell or '') for cell in cells)} \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _grid(table: Table) -> Iterator[str]:
    """Yield a table to write in."""
    n = len(table.columns)
    rule = rf"\cline{{2-{n + 1}}}"
    yield rf"\begin{{tabular}}[t]{{@{{}}r@{{\ }}|*{{{n}}}{{@{{}}c@{{}}|}}}}"
    names = " & ".join(
        rf"\multicolumn{{1}}{{@{{}}c@{{}}}}{{\small {_number(name)}}}" for name in table.columns
    )
    yield rf"\multicolumn{{1}}{{@{{}}r@{{\ }}}}{{}} & {names} \\ {rule}"
    for label, cells in table.rows:
        filled = " & ".join(rf"\cell{{{_number(cell) if cell else ''}}}" for cell in cells)
        yield rf"{_label(label)} & {filled} \\ {rule}"
    yield r"\end{tabular}"


def _label(label: str | Math) -> str:
    return formula(label.text) if isinstance(label, Math) else escape(label)


def _number(text: str) -> str:
    return f"${text}$" if re.fullmatch(r"-?[0-9.]+", text) else escape(text)


def _words(words: Words) -> str:
    shown = []
    for part in words:
        match part:
            case Math(text):
                shown.append(formula(text))
            case Code(text):
                shown.append(rf"\texttt{{{escape(text)}}}")
            case str():
                shown.append(escape(part))
    return "".join(shown)
