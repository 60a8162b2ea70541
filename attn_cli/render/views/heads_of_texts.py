"""The table of attn heads --texts: what every head does over many texts, on a screen and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.errors import count, fixed, visible
from attn_cli.pipeline.heads_of_texts import MEASURES, SHARES, HeadOverTexts, HeadsOverTexts, Spread
from attn_cli.render import Block, Columns, Heading, Say, share
from attn_cli.render.views.heads import KINDS, WORDS
from attn_cli.settings import View
from attn_cli.trace.head_roles import BAG

SHOWN = ("entropy", "distance", "sink")  # of every head; then the share that it is named for


def screen(found: HeadsOverTexts, view: View) -> Iterator[Block]:
    """Yield a line for each head: what it does in most texts, and its measures with their spread."""
    heads = count(len(found.heads), "head", "heads")
    texts = f"{count(found.texts, 'text', 'texts')} ({count(found.tokens, 'token', 'tokens')})"
    yield Heading(f"{KINDS[found.kind]}: {heads} over {texts}", 1)
    yield Say(_finding(found))
    rows = []
    for head in found.heads:
        (role, many), *_ = head.roles.most_common(1)
        means = [_spread(head.measures[name]) for name in SHOWN]
        own, often = _spread(head.measures[role]) if role in SHARES else "-", share(many / head.roles.total())
        rows.append((_label(head, found), WORDS[role][0], often, *means, own))
    yield Columns(("head", "does", "in", *SHOWN, "its share"), rows)
    yield Say(
        "In: the share of the texts in which a head does that most. Then means over the texts ± how much single texts "
        "vary (standard deviation): entropy in bits, distance in tokens; sink: the largest mean weight that one key "
        "gets from the other words.",
        quiet=True,
    )
    yield Say(f"Weights of {visible(found.source)}.")
    yield from (Say(f"Note: {note}") for note in found.notes)


def _label(head: HeadOverTexts, found: HeadsOverTexts) -> str:
    is_one = len({one.layer for one in found.heads}) == 1
    return head.name if is_one else f"{head.layer}.{head.name}"


def _spread(one: Spread) -> str:
    return "-" if one.mean is None else f"{fixed(one.mean, 2)}±{fixed(one.spread or 0.0, 2)}"


def _finding(found: HeadsOverTexts) -> str:
    steady, drawn = [head for head in found.heads if head.role in SHARES], ""
    if drawing := [head for head in found.heads if head.measures["sink"].mean is not None]:
        sink = max(drawing, key=lambda head: head.measures["sink"].mean or 0.0)
        place, weight = visible(_label(sink, found)), share(sink.measures["sink"].mean or 0.0)
        drawn = f" The strongest sink is in {place}: one key gets {weight} of the other words' attention."
    if not steady:
        return f"No head does one simple thing in most texts.{drawn}"
    best = max(steady, key=lambda head: (head.roles[head.role], head.measures[head.role].mean or 0.0))
    where = "evenly at all it may see" if best.role == BAG else f"at {WORDS[best.role][2].partition(',')[0]}"
    often = f"in {best.roles[best.role]:,} of {found.texts:,} texts"
    return f"{visible(_label(best, found))} looks {where} {often}.{drawn}"


def rows(found: HeadsOverTexts) -> Iterator[Sequence[object]]:
    """Yield a row for each head, with the mean and the spread of every measure."""
    spreads = [f"{name}_{part}" for name in MEASURES for part in ("mean", "spread")]
    yield "layer", "head", "name", "texts", *spreads
    for head in found.heads:
        cells = [value for name in MEASURES for value in head.measures[name][:2]]
        yield head.layer, head.name, head.role, found.texts, *cells
