"""A chunk of lines to their records: texts of one shape in groups, all others one by one, with the same numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attn_cli.batch.job import Job
from attn_cli.batch.lines import LONGEST_LINE, Line
from attn_cli.batch.records import QUICK, Record, full_record, quick_records, ready_fields
from attn_cli.batch.words import WordTable
from attn_cli.errors import AttnError, InputError, UsageError
from attn_cli.io.files import looks_like_file
from attn_cli.pipeline.attend import Group, attend_group, ready_heads
from attn_cli.pipeline.embed import Shared, open_shared
from attn_cli.pipeline.inputs import Inputs
from attn_cli.pipeline.mask import stated_mask
from attn_cli.pipeline.project import Layer, project_inputs, project_with_model
from attn_cli.pipeline.record import record_trace
from attn_cli.pipeline.sources.text import read_inputs, trace_text
from attn_cli.settings.settings import ALL
from attn_cli.settings.validate import settings_for_masked, text_limit
from attn_cli.text.tokenize import tokenize

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array
    from attn_cli.trace.trace import Trace

MOST_TOKENS = 5_000  # of a line: its weights are the square
LARGEST = 1 << 14  # weights of a text that is computed in a group
CELLS = 1 << 15  # weights of a group: what is worked on stays near the processor
TOKEN_OPTIONS = ("--query", "--without")  # they name a token, which some lines may have
PROBE = "x"  # a text that fails where every text would

Row = Record | AttnError  # what becomes of a line


class Text(NamedTuple):
    """A line whose words are looked up: its place in the chunk, both sides' tokens, and their rows or inputs."""

    at: int
    query: Sequence[str]
    key: Sequence[str]
    rows: tuple[Sequence[int], Sequence[int]] | None
    inputs: Inputs | None

    def vectors(self, side: int) -> Array:
        """Return the vectors of the queries (0) or of the keys (1), where there are inputs."""
        assert self.inputs is not None
        X = (self.inputs.query, self.inputs.key)[side].X
        assert X is not None  # there is a text
        return X

    @property
    def shape(self) -> tuple[int, int]:
        """How many queries and keys there are."""
        return len(self.query), len(self.key)


class Computer:
    """Computes the records of lines; what lines share is opened once. Use it in a `with` statement.

    Raises at once what would be wrong with every line.
    """

    def __init__(self, job: Job) -> None:
        settings = settings_for_masked(job.settings) if job.kind == "masked" else job.settings
        self.job, self.settings = job, settings
        self.opened = ExitStack()
        self.most_bytes = text_limit(settings)
        self.layer: Layer | None = None  # where lines are computed in groups
        if settings.model is not None:
            from attn_cli.batch.model_lines import settings_of_lines  # only for a model on disk
            from attn_cli.pipeline.sources.checkpoint_text import open_model

            self.shared = Shared(model=self.opened.enter_context(open_model(settings.model)))
            self.settings = settings_of_lines(job, settings)
            return
        self.shared = open_shared(settings)
        is_told = not {"next_words", "next_words_at", "notes"}.isdisjoint(job.keys)
        if self._is_language_model and not is_told:
            self.settings = replace(settings, next=0, next_at="last")
        self._try_probe()
        self.is_quick = QUICK.issuperset(job.keys)
        if self._are_grouped():
            self._prepare_groups()

    def __enter__(self) -> Computer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.opened.close()

    # What all lines share

    def _try_probe(self) -> None:
        settings, kind = self.settings, self.job.kind
        of_each = settings.mask is not None and looks_like_file(
            settings.mask
        )  # its shape fits only some lines
        oov = "zero" if settings.oov in ("error", "skip") else settings.oov
        usual = replace(settings, query=None, without=(), oov=oov, mask=None if of_each else settings.mask)
        trace_text(kind, PROBE, PROBE if kind == "cross" else None, usual, shared=self.shared)

    def _are_grouped(self) -> bool:
        """Tell whether texts can be computed in groups with these settings."""
        settings = self.settings
        is_plain = not any(one is not None for one in (settings.query, settings.round, settings.pad))
        is_plain = is_plain and not settings.without and not settings.every_head
        is_plain = is_plain and settings.positions in (None, "none") and settings.layer != ALL
        has_own_mask = settings.mask is not None and looks_like_file(settings.mask)
        from_file = (
            self.shared.weights is not None and not self.is_quick
        )  # whose notes are about each text's shape
        return is_plain and not has_own_mask and not from_file and not self._is_language_model

    @property
    def _is_language_model(self) -> bool:
        """Whether the model is a language model, which reads each text in its own way."""
        stack = self.shared.stack
        return stack is not None and stack.words is not None

    def _prepare_groups(self) -> None:
        """Make what groups share: the heads, and the table of words."""
        settings, is_self = self.settings, self.job.kind != "cross"
        oov = "zero" if settings.oov in ("error", "skip") else settings.oov
        probe = replace(settings, oov=oov)
        inputs = read_inputs(PROBE, None if is_self else PROBE, probe, self.shared)
        assert inputs.query.X is not None
        self.words = WordTable(settings, self.shared, inputs.query.X.shape[1])
        stack = self.shared.stack
        if stack is None:
            layer, self.more_notes = project_inputs(inputs, probe, None, self.shared.weights)
        else:
            mask = stated_mask(probe, None, 1, 1, "")
            _, layer, self.more_notes = project_with_model(inputs, stack, probe, mask, None)
        self.layer = layer._replace(governor=None)  # the word that a sentence turns on is in no record
        heads = [head.W for head in layer.heads if head.W is not None]
        if self.is_quick and layer.shown != "mean":
            heads = [head for head in heads if head.name == layer.shown]
        self.heads = ready_heads(heads, settings, is_self)
        self.number = layer.projection.about.layer or 0
        self.has_values = not self.is_quick

    # A chunk

    def rows(self, lines: Sequence[Line]) -> Iterator[Row]:
        """Yield what becomes of each line: its record, or the error that refuses it."""
        done: dict[int, Record] = {}
        if self.layer is not None:
            self.words.make_room()
            groups: dict[tuple[int, int], list[Text]] = defaultdict(list)
            for text in self._quick_texts(lines) if self.is_quick else self._full_texts(lines):
                if text.shape[0] * text.shape[1] <= LARGEST:
                    groups[text.shape].append(text)
            for (n_q, n_k), texts in groups.items():
                size = max(1, CELLS // (n_q * n_k))
                for start in range(0, len(texts), size):
                    done |= self._of_group(texts[start : start + size])
        elif self.shared.model is not None and self.job.is_whole:
            from attn_cli.batch.model_lines import records_of_model

            done |= records_of_model(self.job, self.settings, self.shared.model, self._plain(lines))
        for at, line in enumerate(lines):
            yield done.pop(at) if at in done else self._one(line)

    def _sides(self, line: bytes) -> tuple[str, str, str]:
        """Return a line's text, the tab after it and the context, which only `cross` has."""
        text = line.decode("utf-8", "replace")
        return text.partition("\t") if self.job.kind == "cross" else (text, "", "")

    def _plain(self, lines: Sequence[Line]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the place and the sides of each line that may be computed in a group."""
        for at, line in enumerate(lines):
            if line is None or len(line) > LARGEST or 3 * len(line) > self.most_bytes:
                continue
            text, tab, context = self._sides(line)
            if self.job.kind != "cross":
                yield at, (text,)
            elif tab and "\t" not in context:
                yield at, (text, context)

    def _full_texts(self, lines: Sequence[Line]) -> Iterator[Text]:
        """Yield the texts with all that a trace says of them."""
        for at, (text, *context) in self._plain(lines):
            with suppress(AttnError):  # said when its turn comes
                inputs = read_inputs(text, context[0] if context else None, self.settings, self.shared)
                yield Text(at, inputs.query.tokens, inputs.key.tokens, None, inputs)

    def _quick_texts(self, lines: Sequence[Line]) -> Iterator[Text]:
        """Yield the texts with the rows of their words alone."""
        name, keep = self.settings.tokenizer, self.settings.keep_punctuation
        cut = [
            (at, [tokenize(side, name, keep).tokens for side in sides]) for at, sides in self._plain(lines)
        ]
        self.words.add([tokens for _, sides in cut for tokens in sides])
        for at, sides in cut:
            rows = [self.words.rows(tokens) for tokens in sides]
            first, last = rows[0], rows[-1]
            if first and last:
                yield Text(at, sides[0], sides[-1], (first, last), None)

    def _of_group(self, texts: Sequence[Text]) -> dict[int, Record]:
        """Return the records of texts of one shape, by their places; none where one of them may be refused."""
        assert self.layer is not None
        n_q, n_k = texts[0].shape
        mask = stated_mask(self.settings, None, n_q, n_k, "")
        try:
            X, context = self._vectors(texts)
            layout = self.layer.projection.about.layout or "in-out"
            group = attend_group(self.heads, X, context, self.settings, mask, layout, self.has_values)
        except InputError:
            return {}
        places = [text.at for text in texts]
        if self.is_quick:
            settings, pairs = self.settings, [(text.query, text.key) for text in texts]
            made = quick_records(group, self.job.keys, self.job.kind, self.layer.shown, settings.top, pairs)
            return dict(zip(places, made, strict=True))
        return dict(zip(places, self._with_traces(group, texts), strict=True))

    def _vectors(self, texts: Sequence[Text]) -> tuple[Array, Array]:
        """Return X (texts, n_q, d) and the context (texts, n_k, d), one array where they are the same."""
        is_self = self.job.kind != "cross"
        sides = []
        for side in (0,) if is_self else (0, 1):
            if self.is_quick:
                X = self.words.vectors([text.rows[side] for text in texts if text.rows is not None])
            else:
                X = np.stack([text.vectors(side) for text in texts])
            sides.append(self._layer_input(X, is_self))
        return sides[0], sides[-1]

    def _layer_input(self, X: Array, is_self: bool) -> Array:
        """Return the input of the layer that is shown: what the layers below make of the words' vectors."""
        stack = self.shared.stack
        if stack is None or (stack.W_in is None and not self.number):
            return X
        n = X.shape[1]
        mask = stated_mask(self.settings, None, n, n, "") if is_self else None
        return np.stack([stack.input(one, self.number, mask, None, self.settings.threads) for one in X])

    def _with_traces(self, group: Group, texts: Sequence[Text]) -> Iterator[Record]:
        layer, job = self.layer, self.job
        assert layer is not None
        pairs = [(text.query, text.key) for text in texts]
        ready = ready_fields(group, job.keys, layer.shown, self.settings, pairs)
        for text, work, fields in zip(texts, group.texts(self.settings.top), ready, strict=True):
            assert text.inputs is not None
            inputs = text.inputs._replace(notes=(*text.inputs.notes, *self.more_notes))
            trace = record_trace(job.kind, inputs, layer, self.settings, work, None)
            yield full_record(trace, job.keys, job.steps, fields)

    # A line by itself

    def _one(self, line: Line) -> Row:
        try:
            trace = self.trace(line)
        except (InputError, UsageError) as error:
            if isinstance(error, UsageError) and error.option not in TOKEN_OPTIONS:
                raise  # it would be wrong for every line
            return error
        return full_record(trace, self.job.keys, self.job.steps)

    def trace(self, line: Line) -> Trace:
        """Return the trace of a line by itself; raise InputError, or UsageError about a token, if it is refused."""
        hint = "Break it into sentences, one a line."
        if line is None:
            raise InputError(f"This line is longer than {LONGEST_LINE:,} bytes.", hint)
        settings, kind, keep = self.settings, self.job.kind, self.job.keep_weights
        text, tab, context = self._sides(line)
        whole = line.decode("utf-8", "replace")
        if len(whole) > MOST_TOKENS and len(tokenize(whole, settings.tokenizer, True).tokens) > MOST_TOKENS:
            raise InputError(f"This line has more than {MOST_TOKENS:,} tokens.", hint)
        if kind != "cross":
            return trace_text(kind, text, None, settings, shared=self.shared, keep_weights=keep)
        if not tab or "\t" in context:
            raise InputError(
                f"{'No tab' if not tab else 'More than one tab'} in this line.",
                "Give TEXT, one tab, CONTEXT.",
            )
        return trace_text(kind, text, context, settings, shared=self.shared, keep_weights=keep)
