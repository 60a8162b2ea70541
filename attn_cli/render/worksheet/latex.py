"""A worksheet as LaTeX: one page of A4 where the exercise is of the usual size, with packages that every TeX has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_cli.render.blocks import Heading, Say
from attn_cli.render.documents.tex_escape import HELPERS, arithmetic, escape
from attn_cli.render.worksheet.content import Question, SheetPart, Tables, WorkTable

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
"""
ROOMY, LARGE, TIGHT = r"\rule[-2.4mm]{0pt}{6.8mm}", r"\rule[-2.2mm]{0pt}{6.2mm}", r"\rule[-1.2mm]{0pt}{4.3mm}"
_QUOTE = re.escape(escape('"'))


def worksheet_latex(parts: Iterable[SheetPart]) -> str:
    """Return the worksheet as a LaTeX document that needs amsmath, array, booktabs and geometry."""
    parts = list(parts)
    is_blank = any(isinstance(part, Question) and part.answer is None for part in parts)
    lines = [line for part in parts for line in _lines(part, is_blank)]
    # Cells are of the size that keeps the worksheet on one page.
    tables = [table for part in parts if isinstance(part, Tables) for table in part.tables]
    is_large = any(len(table.columns) > 4 for table in tables if not table.is_given)
    row = TIGHT if not is_blank else LARGE if is_large else ROOMY
    preamble = PREAMBLE.replace("STRUT", row).replace("WIDTH", "10mm" if is_large else "11mm") + HELPERS
    return "\n".join([preamble, r"\begin{document}", *lines, r"\end{document}", ""])


def _lines(part: SheetPart, is_blank: bool) -> Iterator[str]:
    match part:
        case Heading(text, 1):
            name = r"\hfill Name: \rule{55mm}{0.2pt}" if is_blank else ""
            yield rf"{{\Large\bfseries {sentence(text)}}}{name}\par"
        case Heading(text):
            yield rf"\par\smallskip\textbf{{{sentence(text)}}}\par"
        case Say(text, quiet):
            yield (rf"{{\footnotesize {sentence(text)}\par}}" if quiet else rf"{sentence(text)}\par")
        case Tables(tables):
            # A table to read begins with its rule, which needs no room above it.
            is_given = tables[0].is_given
            yield r"\par\vspace{-1.5mm}" if is_given else r"\par\smallskip"
            gap = "\\qquad\n" if is_given else "\\quad\n"
            yield gap.join("\n".join(_table(table)) for table in tables) + r"\par\smallskip"
        case Question(number, text, answer):
            yield rf"{number}. {sentence(text)}"
            yield (rf"\quad\emph{{{sentence(answer)}}}" if answer else r"\answerline") + r"\par"


def _table(table: WorkTable) -> Iterator[str]:
    title = sentence(table.title.partition(":")[0])
    formula = arithmetic(table.formula)
    yield r"\begin{tabular}[t]{@{}l@{}}"
    if not table.is_given:
        yield " ".join(filter(None, [rf"\textbf{{{title}}}\ " if title else "", formula])) + r"\\[1mm]"
    yield from _to_read(table, formula) if table.is_given else _to_write_in(table)
    yield r"\end{tabular}"


def _to_read(table: WorkTable, corner: str) -> Iterator[str]:
    yield rf"\begin{{tabular}}[t]{{@{{}}l*{{{len(table.columns)}}}{{r}}@{{}}}}"
    yield rf"\toprule {corner} & {' & '.join(map(_number, table.columns))} \\ \midrule"
    for label, *cells in table.rows:
        yield rf"{_label(label)} & {' & '.join(map(_number, cells))} \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _to_write_in(table: WorkTable) -> Iterator[str]:
    n = len(table.columns)
    rule = rf"\cline{{2-{n + 1}}}"
    yield rf"\begin{{tabular}}[t]{{@{{}}r@{{\ }}|*{{{n}}}{{@{{}}c@{{}}|}}}}"
    names = [rf"\multicolumn{{1}}{{@{{}}c@{{}}}}{{\small {_number(name)}}}" for name in table.columns]
    yield rf"\multicolumn{{1}}{{@{{}}r@{{\ }}}}{{}} & {' & '.join(names)} \\ {rule}"
    for label, *cells in table.rows:
        filled = " & ".join(rf"\cell{{{_number(cell)}}}" for cell in cells)
        yield rf"{_label(label)} & {filled} \\ {rule}"
    yield r"\end{tabular}"


def _label(label: str) -> str:
    return f"{{{sentence(label)}}}"  # in braces: after a line's end, [ and * would be commands


def _number(text: str) -> str:
    return f"${text}$" if re.fullmatch(r"-?[0-9.]+", text) else escape(text)


def sentence(text: str) -> str:
    r"""Return a sentence with typographic quotation marks; what is between backticks is a formula or a command.

    >>> print(sentence('Of "50 %" each `e^-0.7`: run `attn check`.'))
    Of ``50 \%'' each $e^{-0.7}$: run \texttt{attn check}.
    """
    parts = []
    for n, part in enumerate(text.split("`")):
        if n % 2:
            parts.append(rf"\texttt{{{escape(part)}}}" if part.startswith("attn ") else arithmetic(part))
        else:
            parts.append(re.sub(rf"{_QUOTE}(.*?){_QUOTE}", r"``\1''", escape(part)))
    return "".join(parts)
