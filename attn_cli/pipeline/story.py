"""What `attn explain` tells when no row and no head is asked for: what a pronoun stands for, if that is clear.

Head antecedent of roles-deep looks from a pronoun to what it stands for. Its file says for each pronoun from which
lead of the strongest link on it was right in four of five unseen cases (`learn.score.ClearLead`). Where no pronoun has
such a lead, the row is that of the main verb (`pipeline.record`).
"""

from __future__ import annotations

from collections.abc import Sequence

from attn_cli.io.types import NamedTuple, OnPart, replace
from attn_cli.models import encoder, model_file
from attn_cli.pipeline.embed import Shared
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings import Settings, leaves_projection_open
from attn_cli.text.tokenize import PRONOUNS, tokenize
from attn_cli.trace import Trace
from attn_cli.vectors.lookup import embed, open_table

MODEL, HEAD = "roles-deep", "antecedent"
MOST_WORDS = 200  # of a text whose pronouns are looked at; the head's own term for the distance ends at 60
LONG = 2_000  # characters, from which one head is work enough
OPEN = ("head", "layer", "query", "oov", "round")  # with one, nothing is left to choose, or was measured


class Resolved(NamedTuple):
    """A pronoun that the head resolves: its place, and what the model knows of how clearly."""

    place: int
    shared: Shared

    def told(self, trace: Trace, says_lead: bool = False) -> Trace:
        """Return a trace of such settings with the pronoun's row in focus, and how often such a clear lead is right."""
        i = self.place + (len(trace.pad_queries) if trace.pad_queries.start == 0 else 0)
        trace = replace(trace, focus=(i,))
        # That was measured without a mask, and with all words.
        asked = trace.settings
        as_measured = asked.mask in (None, "none") and not asked.without and asked.temperature == 1
        known = self.shared.stack and self.shared.stack.clear_lead(HEAD, trace.query_tokens[i].lower())
        if not (as_measured and asked.score in (None, "scaled") and known):
            return trace
        (least, forms, n, right), lead = known, encoder.lead_of(trace.weights[trace.row_in_arrays(i)])
        here = f", here {lead:.3f}" if says_lead else ""
        such = f"such cases ({forms}; a lead in weight of {least:.3f} or more{here})"
        finds = f"Head {HEAD} of {MODEL} finds what a pronoun stands for"
        note = f"{finds}: in unseen novels, it was right in {right} of {n} {such}."
        return replace(trace, notes=(note, *trace.notes)) if lead >= least else trace


def trace_explained(
    kind: str, text: str, context: str | None, settings: Settings, report: OnPart, name_outputs: bool
) -> Trace:
    """Return the trace that `attn explain` shows, with the row that it tells in focus."""
    found = resolved([text], settings) if context is None else None
    if found is not None:
        settings = replace(settings, projection=MODEL, head=HEAD)
    is_short = name_outputs and settings.model is None and len(text) < LONG
    asked = replace(settings, every_head=True) if is_short else settings  # one word under several heads
    shared = found and found.shared
    trace = trace_text(kind, text, context, asked, report, name_outputs, shared, keep_weights=True)
    return trace if found is None else found.told(trace, says_lead=True)


def resolved(texts: Sequence[str | Sequence[str]], settings: Settings) -> Resolved | None:
    """Return the pronoun that leads most clearly; None without one, or where somebody chose a head or a row.

    Of texts that differ in a few words, it is the one that does in any; if none leads clearly, one whose strongest link
    leads back. A mask, or another score, changes neither the model nor the pronoun.
    """
    is_open = leaves_projection_open(settings) and not settings.knock_out
    if not is_open or any(getattr(settings, name) is not None for name in OPEN):
        return None
    cut = settings.tokenizer, settings.keep_punctuation
    sides = [tokenize(text, *cut).tokens if isinstance(text, str) else text for text in texts]
    if len(sides[0]) > MOST_WORDS or not any(word.lower() in PRONOUNS for words in sides for word in words):
        return None
    stack, table = model_file.bundled(MODEL), open_table("word2vec")
    head = next(head for head in stack.last.heads if head.name == HEAD)
    found = []
    for words in sides:
        X = stack.input(embed(words, table, "model", 0, stack.spelling).X, stack.layers - 1, None)
        for i, row in enumerate(encoder.weights_of(head, X)):
            known, best = stack.clear_lead(HEAD, words[i].lower()), row.argmax()
            if known is not None and best < i and words[best].lower() not in PRONOUNS:
                found.append((encoder.lead_of(row) >= known[0], encoder.lead_of(row), -i))
    if not found or (len(sides) == 1 and not max(found)[0]):
        return None
    return Resolved(-max(found)[2], Shared(stack, table))
