"""A chunk of lines to the bytes that are written for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attn_cli.batch.forms import FORMS
from attn_cli.errors import AttnError
from attn_cli.io.json_text import json_line

if TYPE_CHECKING:
    from attn_cli.batch.compute import Computer
    from attn_cli.batch.lines import Chunk


class Written(NamedTuple):
    """What a chunk became: its bytes, how many lines are in them, how many were refused, the first one's number.

    Where the run ends at a bad line, `error` is its error, and the bytes are those of the lines before it.
    """

    data: bytes
    lines: int
    refused: int
    first: int
    error: AttnError | None = None


def write_chunk(computer: Computer, chunk: Chunk) -> Written:
    """Compute the lines of a chunk, and write them in the form of the job."""
    pack = FORMS[computer.job.form].pack
    if pack is not None:
        found = _json_lines(computer, chunk)
        return found._replace(data=pack(found.data))
    from attn_cli.batch.tables import write_rows  # only those who ask for columns need pyarrow

    return write_rows(computer, chunk)


def _json_lines(computer: Computer, chunk: Chunk) -> Written:
    job, refused = computer.job, 0
    parts: list[bytes] = []
    for number, row in enumerate(computer.rows(chunk.lines), chunk.first):
        if isinstance(row, AttnError):
            row.line = number
            if not job.keep_going:
                return Written(b"".join(parts), len(parts), refused, chunk.first, row)
            row, refused = row.as_record(), refused + 1
        parts.append(json_line(row, job.ascii_only))
    return Written(b"".join(parts), len(parts), refused, chunk.first)
