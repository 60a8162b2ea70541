"""Links of a trace as a Parquet table, a row each: what `attn batch --tidy` writes of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.render.formats import FORMATS, Format, Written

if TYPE_CHECKING:
    from attn_cli.io.terminal import Terminal
    from attn_cli.render.result import Result
    from attn_cli.settings.output import View
    from attn_cli.settings.settings import Settings


def parquet(result: Result, view: View, terminal: Terminal) -> Written:
    """Return the links of the result's trace as a table, and what it has no room for."""
    from attn_cli.batch.forms import parquet_of
    from attn_cli.batch.links import keys_of_links
    from attn_cli.settings.output import keys_named

    trace = result.trace()
    record = trace.to_dict(keys=keys_named(keys_of_links(trace.settings)))
    alone = ["parquet holds the weights alone; the steps show in table, markdown and json."]
    return Written(
        [parquet_of(record, trace.settings.dtype)], [*result.remarks, *alone * result.has_steps(view)]
    )


def check_pyarrow(settings: Settings, view: View) -> Settings:
    """Return the settings; raise MissingExtra without pyarrow: before the work, and not after it."""
    from attn_cli.batch.forms import load_pyarrow

    load_pyarrow()
    return settings


NOT_TEXT = ("-f parquet is not text.", "Write it to a file: -o weights.parquet")
FORMATS["parquet"] = Format(
    "trace", parquet, (".parquet",), not_on_terminal=NOT_TEXT, settings=check_pyarrow, is_tidy=True
)
