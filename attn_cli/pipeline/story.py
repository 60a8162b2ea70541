"""What `attn explain` tells when no row and no head is asked for: what a pronoun stands for, if that is clear.

Head antecedent of roles-deep looks from a pronoun to what it stands for. Its file says for each pronoun from which
lead of the strongest link on it was right in four of five unseen cases (`learn.score.ClearLead`). Where no pronoun has
such a lead, the row is that of the main verb (`pipeline.record`).
"""

from __future__ import annotations

from dataclasses import replace

from attn_cli.io.classes import NamedTuple
from attn_cli.io.progress import OnPart
from attn_cli.pipeline.embed import Shared
from attn_cli.pipeline.sources.text import trace_text
from attn_cli.settings.settings import Settings
from attn_cli.settings.validate import leaves_projection_open
from attn_cli.text.tokenize import PRONOUNS, tokenize
from attn_cli.trace.trace import Trace

MODEL, HEAD = "roles-deep", "antecedent"
MOST_WORDS = 200  # of a text whose pronouns are looked at; the head's own term for the distance ends at 60
LONG = 2_000  # characters, from which one head is work enough
OPEN = ("head", "layer", "query", "oov", "round")  # with one, nothing is left to choose, or was measured


class Resolved(NamedTuple):
    """A pronoun that the head resolves: its place, and how clearly, in words."""

    place: int
    note: str
    shared: Shared


def trace_explained(
    kind: str,
    text: str,
    context: str | None,
    settings: Settings,
    report: OnPart | None = None,
    name_outputs: bool = True,
) -> Trace:
    """Return the trace that `attn explain` shows, with the row that it tells in focus."""
    found = resolved(text, settings) if context is None else None
    if found is not None:
        settings = replace(settings, projection=MODEL, head=HEAD)
    is_short = name_outputs and settings.model is None and len(text) < LONG
    asked = replace(settings, every_head=True) if is_short else settings  # one word under several heads
    shared = found and found.shared
    trace = trace_text(kind, text, context, asked, report, name_outputs, shared, keep_weights=True)
    if found is None:
        return trace
    ahead = len(trace.pad_queries) if trace.pad_queries.start == 0 else 0
    # How often such a lead is right was measured without a mask, and with all words.
    as_measured = settings.mask in (None, "none") and not settings.without and settings.temperature == 1
    as_measured = as_measured and settings.score in (None, "scaled")
    notes = (found.note, *trace.notes) if as_measured else trace.notes
    return replace(trace, focus=(ahead + found.place,), notes=notes)


def resolved(text: str, settings: Settings) -> Resolved | None:
    """Return the pronoun that leads most clearly; None without one, or where somebody chose a head or a row.

    A mask, or another score, changes neither the model nor the pronoun: the text alone decides.
    """
    is_open = leaves_projection_open(settings) and not settings.knock_out
    if not is_open or any(getattr(settings, name) is not None for name in OPEN):
        return None
    words = tokenize(text, settings.tokenizer, settings.keep_punctuation).tokens[: MOST_WORDS + 1]
    places = [i for i, word in enumerate(words) if word.lower() in PRONOUNS]
    if not places or len(words) > MOST_WORDS:
        return None
    from attn_cli.models.encoder import lead_of, weights_of  # only for a text with a pronoun
    from attn_cli.models.model_file import bundled
    from attn_cli.vectors.lookup import embed, open_table

    stack, table = bundled(MODEL), open_table("word2vec")
    X = stack.input(embed(words, table, "model", 0, stack.spelling).X, stack.layers - 1, None)
    weights = weights_of(next(head for head in stack.last.heads if head.name == HEAD), X)
    clear = []
    for i in places:
        known, lead = stack.clear_lead(HEAD, words[i].lower()), lead_of(weights[i])
        j = int(weights[i].argmax())
        if known is not None and lead >= known[0] and j < i and j not in places:
            clear.append((lead, -i, known))
    if not clear:
        return None
    lead, place, (least, forms, n, right) = max(clear)
    note = (
        f"Head {HEAD} of {MODEL} finds what a pronoun stands for: in unseen novels, it was right in {right} of {n} "
        f"such cases ({forms}; a lead in weight of {least:.3f} or more, here {lead:.3f})."
    )
    return Resolved(-place, note, Shared(stack, table))
