"""A chunk of lines to their records: texts of one shape in groups, all others one by one, with the same numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress

import numpy as np

from attn_cli.batch import LONGEST_LINE, Job, Line
from attn_cli.batch.records import QUICK, Record, Row, full_record, group_fields, of_line, records_of_model
from attn_cli.errors import AttnError, InputError, UsageError, refuse_input
from attn_cli.io.files import looks_like_file
from attn_cli.io.types import Array, NamedTuple, replace
from attn_cli.pipeline import Inputs, Layer, attend, record
from attn_cli.pipeline.embed import Shared, open_shared, usual_oov
from attn_cli.pipeline.mask import stated_mask
from attn_cli.pipeline.project import project_inputs, project_with_model
from attn_cli.pipeline.sources.text import read_inputs, trace_text
from attn_cli.settings import ALL, Settings, declare, settings_for_masked, settings_of, text_limit
from attn_cli.text.tokenize import tokenize
from attn_cli.trace import Trace
from attn_cli.vectors.lookup import embed, random_vectors

MOST_TOKENS = 5_000  # of a line: its weights are the square
MAX_GROUPED_WEIGHTS = 1 << 14  # weights of a text that is computed in a group
CELLS = 1 << 15  # weights of a group: what is worked on stays near the processor
TOKEN_OPTIONS = ("--query", "--without")  # they name a token: an error in one concerns this line only
PROBE = "x"  # a dummy text: if it fails, every line would
MOST_BYTES = 1 << 26  # of the vectors of a table of words; then it is emptied
FIRST_ROWS = 256  # of it
LONGEST_WORD = 64  # letters; a text with a longer word is computed by itself
OF_NEXT_WORDS = {"next_words", "next_words_at", "notes"}  # fields that tell of the words that come next


class WordTable:
    """The rows X of the words met so far, as `embed_tokens` makes them, in `matrix`."""

    def __init__(self, settings: Settings, shared: Shared, dim: int) -> None:
        self.settings, self.shared = settings, shared
        self.oov = settings.oov or usual_oov(settings, shared.stack)
        self.longest = min(LONGEST_WORD, (declare.size_of(settings.max_word) or 0) // 4)
        self.most = max(FIRST_ROWS, MOST_BYTES // (8 * dim))
        self.matrix: Array = np.empty((FIRST_ROWS, dim))
        self.places: dict[str, int] = {}  # of words; -1 where --oov error or skip has to do with one
        self.used = 0  # rows of `matrix`

    def add(self, texts: Sequence[Sequence[str]]) -> None:
        """Look up the words that are new, all at once; where one of them is refused, each text by itself.

        If there are too many, all others are forgotten first: their rows no longer hold.
        """
        if len(self.places) > self.most:
            self.places, self.used = {}, 0
        new = {token for tokens in texts for token in tokens if token not in self.places}
        try:
            self._add(sorted(new))
        except AttnError:
            for tokens in texts:
                with suppress(AttnError):  # said when the text is computed by itself
                    self._add([token for token in dict.fromkeys(tokens) if token not in self.places])

    def rows(self, tokens: Sequence[str]) -> list[int] | None:
        """Return each token's row in `matrix`; None where a token is long, or --oov error or skip has to do with it."""
        found = [self.places.get(token, -1) for token in tokens]
        return None if -1 in found else found

    def _add(self, words: Sequence[str]) -> None:
        """Look up words, and hold them unless they are long."""
        new = [word for word in words if len(word) <= self.longest]
        settings, stack, table = self.settings, self.shared.stack, self.shared.table
        if not new:
            return
        if settings.embedding == "random":
            X = random_vectors(new, self.matrix.shape[1], settings.seed).X
        else:
            assert table is not None  # open_shared has opened it
            oov = "skip" if self.oov == "error" else self.oov
            found = embed(new, table, oov, settings.seed, None if stack is None else stack.spelling)
            X = found.X
            if self.oov in ("error", "skip"):
                self.places |= dict.fromkeys(found.unknown, -1)
                new = [token for token in new if token not in found.unknown]
        start, self.used = self.used, self.used + len(new)
        while self.used > len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.empty_like(self.matrix)])
        self.matrix[start : self.used] = X
        self.places |= {token: start + n for n, token in enumerate(new)}


class Text(NamedTuple):
    """A line whose words are looked up: its place, both sides' tokens, and their rows in the table or vectors X."""

    at: int
    query: Sequence[str]
    key: Sequence[str]
    sides: tuple[Sequence[int], Sequence[int]] | tuple[Array, Array]
    inputs: Inputs | None = None  # where a trace is made


class Computer(ExitStack):
    """Computes records of lines in a `with` statement; raises at once what would be wrong with every line."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        settings = settings_for_masked(job.settings) if job.kind == "masked" else job.settings
        settings = settings_of("cross", settings) if job.kind == "cross" else settings
        self.job, self.is_self = job, job.kind != "cross"
        self.has_two = not self.is_self or settings.pair is not None  # texts a line
        self.is_quick = QUICK.issuperset(job.chosen)
        self.most_bytes = text_limit(settings)
        self.layer: Layer | None = None  # where lines are computed in groups
        if settings.model is None:
            self.shared = open_shared(settings)
        else:
            from attn_cli.models.checkpoints.open_model import open_model  # only for a model on disk

            self.shared = Shared(model=self.enter_context(open_model(settings.model)))
        stack = self.shared.stack
        is_language_model = stack is not None and stack.words is not None  # it reads each text in its own way
        makes_words = is_language_model or (settings.model is not None and settings.next)
        if makes_words and OF_NEXT_WORDS.isdisjoint(job.chosen):
            settings = replace(settings, next=0, next_at="last")
        self.settings = settings
        if settings.model is not None:
            return
        probe = replace(settings, oov="zero" if settings.oov in ("error", "skip") else settings.oov)
        # A mask's shape may fit only some lines, and some may have no such token.
        has_mask_file = settings.mask is not None and looks_like_file(settings.mask)
        alone = replace(probe, query=None, without=(), mask=None if has_mask_file else settings.mask)
        trace_text(job.kind, PROBE, None if self.is_self else PROBE, alone, shared=self.shared)
        if not (has_mask_file or is_language_model or self._asks_more()):
            self._prepare_groups(probe)

    def _asks_more(self) -> bool:
        """Tell whether settings ask for what groups do not compute."""
        one = self.settings
        # With a projection from a file, notes are about each text's shape.
        has_own_notes = self.shared.weights is not None and not self.is_quick
        asks_more = one.without or one.knock_out or one.every_head or one.layer == ALL
        is_unlike = (one.query, one.round, one.pad) != (None, None, None)
        return has_own_notes or bool(asks_more) or is_unlike or one.positions not in (None, "none")

    def _prepare_groups(self, probe: Settings) -> None:
        """Make what groups share: the heads, and the table of words."""
        settings, stack = self.settings, self.shared.stack
        inputs = read_inputs(PROBE, None if self.is_self else PROBE, probe, self.shared)
        assert inputs.query.X is not None
        self.words = WordTable(settings, self.shared, inputs.query.X.shape[1])
        if stack is None:
            layer = project_inputs(inputs, probe, None, self.shared.weights)
        else:
            _, layer = project_with_model(inputs, stack, probe, stated_mask(probe, None, 1, 1, ""), None)
        self.layer = layer._replace(root_head=None)  # no record needs the sentence's root word
        heads = [head.W for head in layer.heads if head.W is not None]
        if self.is_quick and layer.shown != "mean":
            heads = [head for head in heads if head.name == layer.shown]
        self.heads = attend.ready_heads(heads, settings, self.is_self)
        self.number = layer.projection.about.layer or 0

    def rows(self, lines: Sequence[Line]) -> Iterator[Row]:
        """Yield what becomes of each line: its record, or the error that refuses it, which may be of a token."""
        done: dict[int, Record] = {}
        if self.layer is not None:
            done = self._grouped(lines, self.layer)
        elif self.shared.model is not None and self.job.is_whole:
            done = records_of_model(self.job, self.settings, self.shared.model, self._plain(lines))
        for at, line in enumerate(lines):
            try:
                yield done.pop(at) if at in done else full_record(self.trace(line), self.job)
            except (InputError, UsageError) as error:
                if isinstance(error, UsageError) and error.option not in TOKEN_OPTIONS:
                    raise  # it would be wrong for every line
                yield error.with_traceback(None)  # frames hold the text, from 3.12 themselves

    def _grouped(self, lines: Sequence[Line], layer: Layer) -> dict[int, Record]:
        """Return the records of the lines that are computed in groups, by their places."""
        done: dict[int, Record] = {}
        groups: dict[tuple[int, int], list[Text]] = defaultdict(list)
        for text in self._quick_texts(lines) if self.is_quick else self._full_texts(lines):
            n_q, n_k = len(text.query), len(text.key)
            if n_q * n_k <= MAX_GROUPED_WEIGHTS:
                groups[n_q, n_k].append(text)
        for (n_q, n_k), texts in groups.items():
            size = max(1, CELLS // (n_q * n_k))
            for start in range(0, len(texts), size):
                done |= self._of_group(texts[start : start + size], layer)
        return done

    def _plain(self, lines: Sequence[Line]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the place and the sides of each line that may be computed in a group."""
        for at, line in enumerate(lines):
            if line is None or len(line) > MAX_GROUPED_WEIGHTS or 3 * len(line) > self.most_bytes:
                continue
            sides = tuple(line.decode("utf-8", "replace").split("\t", -1 if self.has_two else 0))
            if not self.has_two or len(sides) == 2:
                yield at, sides

    def _full_texts(self, lines: Sequence[Line]) -> Iterator[Text]:
        """Yield the texts with all that a trace says of them."""
        for at, (text, *context) in self._plain(lines):
            with suppress(AttnError):  # said when its turn comes
                inputs = read_inputs(text, context[0] if context else None, self.settings, self.shared)
                query, key = inputs.query, inputs.key
                assert query.X is not None and key.X is not None  # there is a text
                yield Text(at, query.tokens, key.tokens, (query.X, key.X), inputs)

    def _quick_texts(self, lines: Sequence[Line]) -> Iterator[Text]:
        """Yield the texts with the rows of their words alone."""
        name, keep = self.settings.tokenizer, self.settings.keep_punctuation
        cut = [(at, [tokenize(one, name, keep).tokens for one in sides]) for at, sides in self._plain(lines)]
        self.words.add([tokens for _, sides in cut for tokens in sides])
        for at, sides in cut:
            first, last = self.words.rows(sides[0]), self.words.rows(sides[-1])
            if first and last:
                yield Text(at, sides[0], sides[-1], (first, last))

    def _of_group(self, texts: Sequence[Text], layer: Layer) -> dict[int, Record]:
        """Return the records of texts of one shape, by their places; none where one of them may be refused."""
        settings, job = self.settings, self.job
        mask = stated_mask(settings, None, len(texts[0].query), len(texts[0].key), "")
        try:
            X = self._layer_input(texts, 0)
            context = X if self.is_self else self._layer_input(texts, 1)
            layout = layer.projection.about.layout or "in-out"
            group = attend.attend_group(self.heads, X, context, settings, mask, layout, not self.is_quick)
        except InputError:
            return {}
        fields = group_fields(group, job, layer, settings, [(text.query, text.key) for text in texts])
        if self.is_quick:
            return {text.at: found for text, found in zip(texts, fields, strict=True)}
        done: dict[int, Record] = {}
        for text, work, ready in zip(texts, group.texts(settings.top), fields, strict=True):
            assert text.inputs is not None
            trace = record.record_trace(record.Attended(job.kind, text.inputs, layer, settings), work)
            done[text.at] = full_record(trace, job, ready)
        return done

    def _layer_input(self, texts: Sequence[Text], side: int) -> Array:
        """Return X (texts, n, d) of the layer that is shown: what the layers below make of the words' vectors."""
        found = [text.sides[side] for text in texts]
        X: Array = self.words.matrix[np.array(found, dtype=np.intp)] if self.is_quick else np.stack(found)
        stack = self.shared.stack
        if stack is None or (stack.W_in is None and not self.number):
            return X
        n = X.shape[1]
        mask = stated_mask(self.settings, None, n, n, "") if self.is_self else None
        return np.stack([stack.input(one, self.number, mask, None, self.settings.threads) for one in X])

    def trace(self, line: Line) -> Trace:
        """Return the trace of a line by itself; raise InputError, or UsageError about a token, if it is refused."""
        hint = "Break it into sentences, one a line."
        if line is None:
            raise InputError(f"This line is longer than {LONGEST_LINE:,} bytes.", hint)
        whole, tokenizer = line.decode("utf-8", "replace"), self.settings.tokenizer
        if len(whole) > MOST_TOKENS and len(tokenize(whole, tokenizer, True).tokens) > MOST_TOKENS:
            raise InputError(f"This line has more than {MOST_TOKENS:,} tokens.", hint)
        text, *context = whole.split("\t", -1 if self.has_two else 0)
        said = f"{'More than one' if context else 'No'} tab in this line."
        refuse_input(self.has_two and len(context) != 1, said, "Give a text, one tab, and the other text.")
        (second, settings), keep = of_line(context, self.settings), self.job.keep_weights
        return trace_text(self.job.kind, text, second, settings, shared=self.shared, keep_weights=keep)
