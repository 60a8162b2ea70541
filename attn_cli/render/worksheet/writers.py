"""A worksheet as an HTML page to print, as LaTeX and as Markdown: one page of A4 at the usual size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html import escape as html_escape
from types import ModuleType

from attn_cli.errors import visible
from attn_cli.io.files import beside
from attn_cli.io.terminal import Terminal
from attn_cli.render import Heading, Say, formats, worksheet
from attn_cli.render.documents import html, markdown as md
from attn_cli.render.documents.tex_escape import HELPERS, arithmetic, escape
from attn_cli.render.worksheet import Question, SheetPart, WorkTable, effects
from attn_cli.teach.effects import EffectExercise
from attn_cli.teach.exercises import Exercise

Write = Callable[[str], str]


def _spoken(text: str, plain: Write, command: Write, formula: Write) -> str:
    """Return a sentence: what stands between backticks is a formula, or a command where it begins with attn."""
    return "".join(
        plain(part) if n % 2 == 0 else command(part) if part.startswith("attn ") else formula(part)
        for n, part in enumerate(text.split("`"))
    )


def _is_blank(parts: Iterable[SheetPart]) -> bool:
    return any(isinstance(part, Question) and part.answer is None for part in parts)


def worksheet_html(parts: Iterable[SheetPart]) -> str:
    """Return the worksheet as an HTML page, well-formed XML too: a box for every blank, nothing from elsewhere."""
    parts = list(parts)
    is_blank, title = _is_blank(parts), _plain(next(part.text for part in parts if isinstance(part, Heading)))
    lines = [line for part in parts for line in _html(part, is_blank)]
    body = "<body>" if is_blank else '<body class="key">'
    return html.html_page(title, beside(__file__, "worksheet.css"), lines, body)


def _html(part: SheetPart, is_blank: bool) -> Iterator[str]:
    match part:
        case Heading(text, level):
            name = '<p class="name">Name: <span></span></p>' if is_blank else ""
            title = f"<header><h1>{_html_text(text)}</h1>{name}</header>"
            yield title if level == 1 else f"<h2>{_html_text(text)}</h2>"
        case Say(text, quiet):
            yield f'<p class="aside">{_html_text(text)}</p>' if quiet else f"<p>{_html_text(text)}</p>"
        case list() as tables:
            lines = [line for table in tables for line in _html_table(table, is_blank)]
            yield from ('<div class="tables">', *lines, "</div>")
        case Question(number, text, answer):
            line = f'<p class="answer">{_html_text(answer)}</p>' if answer else '<div class="line"></div>'
            yield f'<div class="question"><p>{number}. {_html_text(text)}</p>\n{line}</div>'


def _html_table(table: WorkTable, is_blank: bool) -> Iterator[str]:
    formula = f"<code>{_raised(table.formula)}</code>"
    yield f'<table class="{"given" if table.is_given else "boxes" if is_blank else "boxes filled"}">'
    if not table.is_given:
        title = _html_text(table.title.partition(":")[0])
        yield f"<caption>{' '.join(filter(None, [title, formula]))}</caption>"
    heads = "".join(f'<th scope="col">{_plain(name)}</th>' for name in table.columns)
    yield f"<thead><tr><th>{formula * table.is_given}</th>{heads}</tr></thead><tbody>"
    for label, *cells in table.rows:
        texts = "".join(f"<td>{_plain(cell)}</td>" for cell in cells)
        yield f'<tr><th scope="row">{_html_text(label)}</th>{texts}</tr>'
    yield "</tbody></table>"


def _html_text(text: str) -> str:
    """Return a sentence with formulas and commands as code."""

    def command(part: str) -> str:
        return f'<code class="command">{_plain(part)}</code>'

    return _spoken(text, _plain, command, lambda part: f"<code>{_raised(part)}</code>")


def _raised(text: str) -> str:
    return re.sub(r"e\^(-?[\w.]+)", r"e<sup>\1</sup>", _plain(text))


def _plain(text: str) -> str:
    return html_escape(visible(text))


ROOMY, LARGE, TIGHT = r"\rule[-2.4mm]{0pt}{6.8mm}", r"\rule[-2.2mm]{0pt}{6.2mm}", r"\rule[-1.2mm]{0pt}{4.3mm}"
_QUOTE = re.escape(escape('"'))


def worksheet_latex(parts: Iterable[SheetPart]) -> str:
    """Return the worksheet as a LaTeX document that needs amsmath, array, booktabs and geometry."""
    parts = list(parts)
    is_blank = _is_blank(parts)
    lines = [line for part in parts for line in _latex(part, is_blank)]
    # Cells are of the size that keeps the worksheet on one page.
    tables = [table for part in parts if isinstance(part, list) for table in part]
    is_large = any(len(table.columns) > 4 for table in tables if not table.is_given)
    row = TIGHT if not is_blank else LARGE if is_large else ROOMY
    preamble = beside(__file__, "worksheet.tex").replace("WIDTH", "10mm" if is_large else "11mm")
    preamble = preamble.replace("STRUT", row) + HELPERS
    return "\n".join([preamble, r"\begin{document}", *lines, r"\end{document}", ""])


def _latex(part: SheetPart, is_blank: bool) -> Iterator[str]:
    match part:
        case Heading(text, 1):
            name = r"\hfill Name: \rule{55mm}{0.2pt}" if is_blank else ""
            yield rf"{{\Large\bfseries {latex_text(text)}}}{name}\par"
        case Heading(text):
            yield rf"\par\smallskip\textbf{{{latex_text(text)}}}\par"
        case Say(text, quiet):
            yield rf"{{\footnotesize {latex_text(text)}\par}}" if quiet else rf"{latex_text(text)}\par"
        case list() as tables:
            # A table to read begins with its rule, which needs no room above it.
            is_given = tables[0].is_given
            yield r"\par\vspace{-1.5mm}" if is_given else r"\par\smallskip"
            gap = "\\qquad\n" if is_given else "\\quad\n"
            yield gap.join("\n".join(_latex_table(table)) for table in tables) + r"\par\smallskip"
        case Question(number, text, answer):
            yield rf"{number}. {latex_text(text)}"
            yield (rf"\quad\emph{{{latex_text(answer)}}}" if answer else r"\answerline") + r"\par"


def _latex_table(table: WorkTable) -> Iterator[str]:
    n, formula, names = len(table.columns), arithmetic(table.formula), list(map(_number, table.columns))
    # A label is in braces: after a line's end, [ and * would be commands.
    rows = [(f"{{{latex_text(label)}}}", list(map(_number, cells))) for label, *cells in table.rows]
    yield r"\begin{tabular}[t]{@{}l@{}}"
    if table.is_given:
        yield rf"\begin{{tabular}}[t]{{@{{}}l*{{{n}}}{{r}}@{{}}}}"
        yield rf"\toprule {formula} & {' & '.join(names)} \\ \midrule"
        yield from (rf"{label} & {' & '.join(cells)} \\" for label, cells in rows)
        yield r"\bottomrule"
    else:
        title, rule = latex_text(table.title.partition(":")[0]), rf"\cline{{2-{n + 1}}}"
        yield " ".join(filter(None, [rf"\textbf{{{title}}}\ " if title else "", formula])) + r"\\[1mm]"
        yield rf"\begin{{tabular}}[t]{{@{{}}r@{{\ }}|*{{{n}}}{{@{{}}c@{{}}|}}}}"
        heads = " & ".join(rf"\multicolumn{{1}}{{@{{}}c@{{}}}}{{\small {name}}}" for name in names)
        yield rf"\multicolumn{{1}}{{@{{}}r@{{\ }}}}{{}} & {heads} \\ {rule}"
        boxes = [(label, " & ".join(rf"\cell{{{cell}}}" for cell in cells)) for label, cells in rows]
        yield from (rf"{label} & {filled} \\ {rule}" for label, filled in boxes)
    yield from [r"\end{tabular}"] * 2


def _number(text: str) -> str:
    return f"${text}$" if re.fullmatch(r"-?[0-9.]+", text) else escape(text)


def latex_text(text: str) -> str:
    r"""Return a sentence with typographic quotation marks, its formulas and commands typeset.

    >>> print(latex_text('Of "50 %" each `e^-0.7`: run `attn check`.'))
    Of ``50 \%'' each $e^{-0.7}$: run \texttt{attn check}.
    """

    def plain(part: str) -> str:
        return re.sub(rf"{_QUOTE}(.*?){_QUOTE}", r"``\1''", escape(part))

    return _spoken(text, plain, lambda part: rf"\texttt{{{escape(part)}}}", arithmetic)


BLANK = "______"
ASCII = {"×": "*", "·": ".", "≈": "~", "–": "-", "ᵀ": "^T"}


def worksheet_markdown(parts: Iterable[SheetPart], unicode: bool = True) -> str:
    """Return the worksheet as a Markdown document; without `unicode`, formulas are spelled in ASCII."""
    text = "\n".join(line for part in parts for line in _markdown(part))
    if not unicode:
        text = re.sub(r"√(\d+)", r"sqrt(\1)", text)
        text = "".join(ASCII.get(char, char) for char in text)
    return text.rstrip("\n") + "\n"


def _markdown(part: SheetPart) -> Iterator[str]:
    match part:
        case Heading(text, level):
            yield from (f"{'#' * level} {md.prose(text)}", "")
        case Say(text, _):
            yield from (_markdown_text(text), "")
        case list() as tables:
            for work in tables:
                if work.title:
                    yield from _markdown(Heading(work.title))
                if work.formula and not work.is_given:
                    yield from (f"{md.code(work.formula)}:", "")
                header = [f"`{work.formula}`" if work.is_given else "", *work.columns]
                yield from md.table(
                    header, work.rows, _markdown_text, lambda text: md.cell(text) if text else BLANK
                )
        case Question(number, text, answer):
            yield from (f"{number}. {_markdown_text(text)}", "")
            yield from (f"   {_markdown_text(answer) if answer else f'Answer: {BLANK * 10}'}", "")


def _markdown_text(text: str) -> str:
    # Escaped as inside a line: a full stop does harm at the start of a line alone.
    return _spoken(text, lambda part: md.prose(f" {part}")[1:], md.code, md.code)


def module_of(made: Exercise | EffectExercise) -> ModuleType:
    """Return the module that says what stands on the sheet of an exercise: its `parts` and `questions`."""
    return effects if hasattr(made, "topic") else worksheet


def sheet(made: Exercise | EffectExercise, format: str, key: bool, terminal: Terminal | None = None) -> str:
    """Return the sheet of an exercise, or its key, as markdown, latex or html, as a terminal can show it if given."""
    parts = module_of(made).parts(made, key)
    if format == "html":
        page = worksheet_html(parts)
        return page if terminal is None else formats.portable(page, terminal)
    if format == "latex":
        return worksheet_latex(parts)
    return worksheet_markdown(parts, terminal is None or terminal.unicode)
