"""What a command has to give, from which every format is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.pipeline.for_page import Page
    from attn_cli.render.blocks import Block
    from attn_cli.render.figures.sheet import Drawing
    from attn_cli.settings.output import View
    from attn_cli.trace.trace import Trace

Record = dict[str, object]
# What the result of a trace has; of bars its blocks are made where the view asks for them.
OF_TRACE = ("blocks", "bars", "record", "rows", "trace", "page", "drawing")
OF_BLOCKS = ("blocks", "record")
OF_RECORD = ("table", "record")  # the text of a table, and no blocks


def _lacks(*_: object) -> NoReturn:
    raise ValueError("this result has nothing that the format needs")


@dataclass(frozen=True)
class Result:
    """What a command has to give; a format needs one of these. What there is not raises ValueError."""

    kind: str = ""  # of its record
    blocks: Callable[[View], Iterable[Block]] = _lacks
    record: Callable[[View], Record] = _lacks
    records: list[Record] = field(default_factory=list)  # of several answers: jsonl has each on a line
    rows: Callable[[View], Iterable[Sequence[object]]] = _lacks  # of cells: text, numbers, "" for none
    trace: Callable[[], Trace] = _lacks
    page: Callable[[], Page] = _lacks
    drawing: Callable[[View], tuple[Drawing, Sequence[str]]] = (
        _lacks  # of --figure, and what to say beside it
    )
    texts: Mapping[str, Callable[[Terminal], str]] = field(
        default_factory=dict
    )  # laid out already, by format
    remarks: Sequence[str] = ()  # what rows have no room for
    has_steps: Callable[[View], bool] = lambda view: (
        False
    )  # whether its screen shows steps, which rows do not


def record_result(
    kind: str, record: Mapping[str, object], table: Callable[[Terminal], str] | None = None
) -> Result:
    """Return the result of a small record: its JSON, and the text of its table if that is laid out already."""
    texts = {} if table is None else {"table": table}
    return Result(kind, record=lambda view: {"schema": "attn/1", "kind": kind, **record}, texts=texts)
