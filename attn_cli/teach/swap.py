"""A word of a text replaced by another: what of its weight stays with the place, and what goes with the word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attn_cli.errors import UsageError, did_you_mean, refuse, visible
from attn_cli.io.types import replace
from attn_cli.pipeline.sources.text import Text, trace_text
from attn_cli.pipeline.story import HEAD, MODEL, resolved
from attn_cli.settings import Settings, find_rows
from attn_cli.teach.compare import SAME, TEXT, Comparison, Report, Swap, Swaps, between, check_one_head
from attn_cli.text.tokenize import tokenize
from attn_cli.trace import Trace

OPTION = "--swap"
HINT = "Try: --swap fox=rock"
Both = tuple[float, float]  # before and after
Sides = Sequence[Sequence[str]]  # the tokens of the text, and of its context


class KeyChange(NamedTuple):
    """What one query gives one key, before and after a swap; None where masked or where there is no such term."""

    key: int
    is_swapped: bool
    weights: Both | None
    content: Both | None  # scaled scores
    distance: Both | None  # position scores

    @property
    def followed_place(self) -> float | None:
        """The part of the weight before that the place keeps; nothing follows a place where no distance counts."""
        return None if self.weights is None else min(self.weights) if self.distance else 0.0

    @property
    def followed_content(self) -> float | None:
        """The part of the weight before that goes with the word."""
        return None if self.weights is None else self.weights[0] - (self.followed_place or 0.0)


class LeadChange(NamedTuple):
    """How far the score of one key is above that of another, before and after a swap, and what made the change."""

    key_index: int  # the strongest key before
    rival_index: int  # the strongest after, or where that is the same key, the strongest other one
    sum: Both
    content: Both
    distance: Both | None
    decided: str | None  # content or distance, whichever changed it more in the direction that it took
    by_query: float | None  # what of the change of content the query makes; None where content is no product
    by_keys: float | None


def change(both: Both | None) -> float:
    """Return after less before; 0 where there is nothing."""
    return 0.0 if both is None else both[1] - both[0]


def parse_swaps(typed: Sequence[str]) -> Swaps:
    """Return the swaps that were written as OLD=NEW: of fox=rock, Swap(old='fox', new='rock')."""
    swaps = []
    for text in typed:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (old and equals and new):
            raise UsageError(f"--swap takes OLD=NEW; {visible(text[:60])!r} is not that.", HINT, OPTION)
        swaps.append(Swap(old, new))
    return tuple(swaps)


def swap(
    kind: str, text: str, context: str | None, settings: Settings, swaps: Swaps, report: Report = None
) -> Comparison:
    """Trace a text as it is, and with words swapped, all at once, in it and in its context.

    Each swap is of all occurrences of a token, or of the place of this number; for a model on disk, which cuts texts
    its own way, in the texts themselves. UsageError for a token that is not there, or several in one's place.
    """
    check_one_head(settings)
    texts = [text] if context is None else [text, context]
    story, swapped, done = None, list[Text](), list[Swap]()
    if settings.model is not None:
        swapped += _swapped_in_texts(texts, swaps)
        values = texts[0], str(swapped[0])
    else:
        sides = [tokenize(side, settings.tokenizer, settings.keep_punctuation).tokens for side in texts]
        if not all(sides):
            trace_text(kind, text, context, settings)  # refuses a text without a token
        tokens, done = _swapped(sides, swaps, settings)
        swapped += tokens
        space = "" if settings.tokenizer == "characters" else " "
        values = space.join(sides[0]), space.join(tokens[0])
        story = resolved([sides[0], tokens[0]], settings) if context is None else None
        settings = settings if story is None else replace(settings, projection=MODEL, head=HEAD)
    before = trace_text(kind, text, context, settings, report)
    other = None if context is None else swapped[1]
    after = trace_text(kind, swapped[0], other, replace(settings, query=None), report)
    if story is not None:
        before, after = map(story.told, (before, after))
    pairs = [(before.query_tokens, after.query_tokens), (before.key_tokens, after.key_tokens)]
    for old, new in pairs:
        if len(old) == len(new):
            continue
        if settings.model is None:
            why = "--oov skip leaves out a word without a vector."
            said = f"The texts have different numbers of tokens: {why}"
            raise UsageError(said, "Choose --oov zero or random.", "--oov")
        said = f"The model cuts the texts into {len(old)} and {len(new)} tokens: no cell has its match."
        hint = "Swap words of as many tokens, or put both texts side by side: attn compare TEXT --with TEXT -m DIR."
        raise UsageError(said, hint, OPTION)
    if settings.model is not None:
        changed = (Swap(*both) for sides in pairs for both in zip(*sides, strict=True) if len({*both}) > 1)
        done = [*dict.fromkeys(changed)]
    refuse(not done, "--swap changes no token: to the model, both texts are the same.", HINT, OPTION)
    after = replace(after, focus=before.focus, settings=settings, dropped=before.dropped)
    return between(TEXT, values, (before, after), swaps=tuple(done))


def _swapped_in_texts(texts: Sequence[str], swaps: Swaps) -> list[str]:
    """Return the texts with words swapped, in any capitals; UsageError for one that stands in none of them."""
    new = {one.old.casefold(): one.new for one in swaps}
    word = re.compile("|".join(rf"(?<!\w){re.escape(one.old)}(?!\w)" for one in swaps), re.IGNORECASE)
    met = {match.casefold() for text in texts for match in word.findall(text)}
    for one in swaps:
        if one.old.casefold() not in met:
            near = did_you_mean(one.old, " ".join(texts).split()[:2000])
            said = f"There is no word {visible(one.old[:60])!r} to replace."
            raise UsageError(said, f"{near}Give a word of the text.", OPTION)
    return [word.sub(lambda match: new[match.group().casefold()], text) for text in texts]


def _swapped(sides: Sides, swaps: Swaps, settings: Settings) -> tuple[list[list[str]], list[Swap]]:
    """Return each side's tokens after all swaps, and the swaps with their tokens as the text has them."""
    result = [list(side) for side in sides]
    done: list[Swap] = []
    taken: set[tuple[int, int]] = set()
    for one in swaps:
        new = tokenize(one.new, settings.tokenizer, settings.keep_punctuation).tokens
        count = f"{len(new)} tokens" if new else "no token"
        refuse(len(new) != 1, f"{visible(one.new[:60])!r} is {count}; --swap takes one.", HINT, OPTION)
        places = _places(one.old, sides)
        if taken & set(places):
            raise UsageError(f"--swap replaces {visible(one.old[:60])!r} twice.", "Swap it once.", OPTION)
        taken |= set(places)
        for side, place in places:
            result[side][place] = new[0]
        olds = dict.fromkeys(sides[side][place] for side, place in places)
        if new[0] in olds:
            raise UsageError(f"--swap would replace {visible(new[0][:60])!r} by itself.", HINT, OPTION)
        done += [Swap(old, new[0]) for old in olds]
    return result, done


def _places(token: str, sides: Sides) -> list[tuple[int, int]]:
    """Return where a token stands: (side, place) of each occurrence; a number is a place of the text."""
    holding = [n for n, tokens in enumerate(sides) if token.casefold() in map(str.casefold, tokens)]
    if not holding and not (token.isdigit() and token.isascii()):
        find_rows(token, [token for side in sides for token in side], OPTION)  # refuses it, with the nearest
    return [(n, place) for n in holding or [0] for place in find_rows(token, sides[n], OPTION)]


def key_changes(comparison: Comparison, i: int) -> list[KeyChange]:
    """Return what query i gives each key before and after the swap."""
    before, after = comparison.traces
    first, second = before.row(i), after.row(i)
    at = before.row_in_arrays(i)
    old, new = (trace.weights[trace.row_in_arrays(i)].tolist() for trace in comparison.traces)
    found = []
    for j, tokens in enumerate(zip(before.key_tokens, after.key_tokens, strict=True)):
        content = distance = None
        if first is not None and second is not None:
            content = (first.scaled[j], second.scaled[j])
            if first.position is not None and second.position is not None:
                distance = (first.position[j], second.position[j])
        weights = (old[j], new[j]) if before.mask is None or before.mask[at, j] else None
        found.append(KeyChange(j, tokens[0] != tokens[1], weights, content, distance))
    return found


def lead_change(comparison: Comparison, i: int) -> LeadChange | None:
    """Return how the lead of row i's strongest key changed; None without scores, or with fewer than two keys.

    Of a change in content, q·(k - k') / √d_k, query and keys make the change of their factor times the other's mean.
    """
    rows = [row for trace in comparison.traces if (row := trace.row(i)) and len(row.strongest) > 1]
    if len(rows) < 2:
        return None
    (key, second), (rival, third) = (row.strongest[:2] for row in rows)
    if rival == key:
        rival = max(second, third, key=lambda j: max(row.weights[j] for row in rows))
    before, after = (row.against(key, rival) for row in rows)
    content, distance = (before.content, after.content), None
    if before.distance is not None and after.distance is not None:
        distance = (before.distance, after.distance)
    by_content, by_distance, by = change(content), change(distance), after.lead - before.lead
    term = "content" if by_content * by >= by_distance * by else "distance"
    q, k = [], []
    for trace in comparison.traces:
        if trace.shown.q is not None and trace.shown.k is not None:
            q.append(trace.shown.q[i])
            k.append((trace.shown.k[key] - trace.shown.k[rival]) * (trace.scale / trace.temperature))
    parts: Both | tuple[None, None] = (None, None)
    if len(q) == 2:
        by_query, by_keys = float((q[1] - q[0]) @ (k[0] + k[1])) / 2, float((q[0] + q[1]) @ (k[1] - k[0])) / 2
        if abs(by_query + by_keys - by_content) <= 1e-6 * max(1, abs(by_query), abs(by_keys)):
            parts = by_query, by_keys
    leads, decided = (before.lead, after.lead), term if abs(by) > SAME else None
    return LeadChange(key, rival, leads, content, distance, decided, *parts)


def is_query_swapped(comparison: Comparison, i: int) -> bool:
    """Tell whether the word that looks is itself replaced."""
    before, after = comparison.traces
    return before.query_tokens[i] != after.query_tokens[i]


def swapped_keys(
    found: Sequence[KeyChange], before: Trace, after: Trace
) -> Iterator[tuple[Swap, list[KeyChange]]]:
    """Yield each pair of words that changed among the keys, with its places, the one with most weight first."""
    groups: dict[Swap, list[KeyChange]] = {}
    for one in found:
        if one.is_swapped:
            pair = Swap(before.key_tokens[one.key], after.key_tokens[one.key])
            groups.setdefault(pair, []).append(one)
    for pair, places in groups.items():
        yield pair, sorted(places, key=lambda one: -max(one.weights or (-1.0,)))
