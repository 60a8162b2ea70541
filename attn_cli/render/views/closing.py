"""What a model says: its likeliest next tokens, or fillers of a mask, as bars; and after each prefix, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from attn_cli.render.blocks import Bars, Block, Columns, Heading, Say
from attn_cli.render.numbers import share
from attn_cli.render.screen.text import listed
from attn_cli.render.views.origins import learned, setting_parts
from attn_cli.render.views.wording import quoted, quoted_at, short
from attn_cli.trace.computation import NextWords
from attn_cli.trace.trace import Trace


def next_words(trace: Trace) -> Iterator[Block]:
    """Yield the likeliest tokens with their probabilities, and a sentence on what they are; nothing without any."""
    found = trace.next_words
    if found is None:
        return
    yield Heading("What the model says")
    together = share(sum(probability for _, probability in found.words))
    yield Bars(_title(trace, found), list(_labelled(found.words)), found.words[0][1], "probability")
    said = f"The whole vocabulary shares a probability of 1, these tokens {together} of it. "
    yield Say(f"{said}All layers of the model were computed for them.{_unchanged(trace)}", quiet=True)
    if trace.next_words_at is not None:
        yield from _after_each(
            trace.next_words_at, has_unknown=trace.learned is not None and bool(trace.unknown)
        )


def _after_each(found: tuple[NextWords, ...], has_unknown: bool) -> Iterator[Block]:
    """Yield a row for each prefix: its last token, the likeliest words after it, and the share of the one that came.

    The token and its place are the row's label, which a table in parts repeats in each.
    """
    digits = len(str(found[-1].place))
    names = [f"{n}." for n in range(1, len(found[0].words) + 1)]
    rows = []
    for one in found:
        likeliest = [f"{word} {share(probability)}" for word, probability in _labelled(one.words)]
        actual = "–" if one.actual is None else share(one.actual)
        rows.append([f"{one.place:>{digits}} {one.token}", actual, *likeliest])
    yield Heading("After each token", 2)
    yield Columns([f"{'':{digits}} after", "actual", *names], rows)
    if any(one.actual is not None for one in found):
        of_all = (
            " A word that the model does not know has that of all unknown ones together."
            if has_unknown
            else ""
        )
        yield Say(f"actual: the probability of the token that really comes next.{of_all}", quiet=True)


def in_a_line(trace: Trace, found: NextWords) -> list[str]:
    """Return the likeliest tokens as one sentence."""
    words = [f"{quoted(word)} {share(probability)}" for word, probability in found.words]
    return [f"{_title(trace, found)} {', '.join(words)}."]


def _title(trace: Trace, found: NextWords) -> str:
    is_there = trace.query_tokens[found.place : found.place + 1] == (found.token,)  # pieces may be joined
    token = quoted_at(trace.query_tokens, found.place) if is_there else quoted(found.token)
    return f"Likeliest to {'fill' if found.fills else 'come after'} {token}:"


def _unchanged(trace: Trace) -> str:
    """Return which options change the layer that is shown, and not the model's words."""
    settings = trace.settings
    is_own = trace.learned is not None and settings.mask == "causal"  # the mask of a language model
    changed = {
        "--mask": settings.mask is not None and not is_own,
        "--without": bool(settings.without),
        "--score": trace.learned is not None and settings.score not in (None, "scaled"),
        "--temperature": settings.temperature != 1,
        "--positions": settings.positions == "sinusoidal",
        "--round": settings.round is not None,
    }
    names = [option for option, is_set in changed.items() if is_set]
    if not names:
        return ""
    hold = "holds" if len(names) == 1 else "hold"
    where = "for the weights" if trace.learned is not None else "in the layer shown"
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f" {listed} {hold} {where}, not for them."


def _labelled(words: tuple[tuple[str, float], ...]) -> list[tuple[str, float]]:
    """Return the words as labels: in quotation marks where a space in front tells a new word from a piece."""
    is_spaced = any(word != word.strip() for word, _ in words)
    return [(quoted(word) if is_spaced else word, probability) for word, probability in words]


def closing(trace: Trace, with_learned: bool = True) -> Iterator[Block]:
    """Yield what follows the numbers: a model's words, settings, what the head was taught, dropped marks, notes."""
    if trace.next_words is not None:
        yield from next_words(trace)
    yield Say("; ".join(setting_parts(trace)) + ".", quiet=True)
    for sentence in [*(learned(trace)[:1] if with_learned else ()), *dropped(trace)]:
        yield Say(sentence, quiet=True)
    for note in trace.notes:
        yield Say(f"Note: {note}")


def dropped(trace: Trace) -> list[str]:
    """Return a line with the marks that the tokenizer dropped, if any."""
    marks = list(dict.fromkeys(short(mark) for mark in trace.dropped))
    return [f"Dropped: {' '.join(marks[:20])}{' ...' if len(marks) > 20 else ''}"] if marks else []


def talk(trace: Trace) -> list[str]:
    """Return the notes for standard error, where the output has no room for them."""
    marks = listed(list(dict.fromkeys(trace.dropped)), 20)
    words = []
    if trace.next_words is not None:
        words = in_a_line(trace, trace.next_words)
    return [*words, *trace.notes, *([f"Dropped: {marks}"] if marks else [])]
