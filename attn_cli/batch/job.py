"""What a run does with each line, in a form that can be sent to another process, and what a chunk becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from attn_cli.errors import AttnError
from attn_cli.settings.settings import Settings


@dataclass(frozen=True)
class Job:
    """What is computed of each line, and how it is written."""

    kind: str  # self, masked or cross
    settings: Settings
    keys: tuple[str, ...]  # of a record, in their order
    steps: bool  # whether heads have their steps
    keep_going: bool
    form: str  # one of FORMS
    ascii_only: bool = False
    keep_weights: bool = False  # whether traces of a pretrained model hold what its layer projects with
    # Whether chunks are the same at each run: not those of a pipe, which come as they come.
    is_whole: bool = True


class ChunkOutput(NamedTuple):
    """What a chunk became: its bytes, how many lines are in them, how many were refused, the first one's number.

    Where the run ends at a bad line, `error` is its error, and the bytes are those of the lines before it.
    """

    data: bytes
    lines: int
    refused: int
    first: int
    error: AttnError | None = None
