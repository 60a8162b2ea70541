"""What a run has to do, in a form that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass

from attn_cli.settings.settings import Settings

USUAL_FIELDS = ("query_tokens", "key_tokens", "weights", "summary")


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
    is_whole: bool = (
        True  # whether chunks are the same at each run: not those of a pipe, which come as they come
    )
