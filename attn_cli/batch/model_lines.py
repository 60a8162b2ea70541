"""Lines for a pretrained model: those of like length go through it together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from attn_cli.batch.records import Record, full_record
from attn_cli.errors import AttnError
from attn_cli.pipeline.sources.checkpoint import can_be_grouped, read_texts, traces_of_group
from attn_cli.settings.validate import check_model, check_shaping

if TYPE_CHECKING:
    from attn_cli.batch.job import Job
    from attn_cli.pipeline.sources.checkpoint import Reading
    from attn_cli.pipeline.sources.checkpoint_text import OpenModel
    from attn_cli.settings.settings import Settings

TOKENS = 512  # of a group


def settings_of_lines(job: Job, settings: Settings) -> Settings:
    """Return the settings without the words that come next, where no field tells of them."""
    is_told = not {"next_words", "next_words_at", "notes"}.isdisjoint(job.keys)
    return settings if is_told or not settings.next else replace(settings, next=0, next_at="last")


def records_of_model(
    job: Job, settings: Settings, model: OpenModel, lines: Iterable[tuple[int, tuple[str, ...]]]
) -> dict[int, Record]:
    """Return the records of the lines that can go through the model together, by their places.

    A line is given by its place and its sides.
    """
    if not can_be_grouped(settings, job.keep_weights):
        return {}
    groups: dict[tuple[int, ...], list[tuple[int, Reading]]] = defaultdict(list)
    for at, (text, *context) in lines:
        with suppress(AttnError):  # said when its turn comes
            check_model(settings)
            check_shaping(settings)
            reading = read_texts(job.kind, text, context[0] if context else None, settings, model)
            groups[reading.run.lengths].append((at, reading))
    done: dict[int, Record] = {}
    for lengths, found in groups.items():
        size = max(1, TOKENS // max(lengths))
        for start in range(0, len(found), size):
            places, readings = zip(*found[start : start + size], strict=True)
            with suppress(AttnError):  # then each by itself
                traces = traces_of_group(readings, settings)
                for at, trace in zip(places, traces, strict=True):
                    done[at] = full_record(trace, job.keys, job.steps)
    return done
