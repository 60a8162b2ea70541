"""The first and the last sentence of a screen: what was found, in words, and what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from attn_cli.io.escape import shell_quote
from attn_cli.render.blocks import Columns, Say
from attn_cli.render.numbers import four, plain, share
from attn_cli.render.views.long_text import links_of
from attn_cli.render.views.wording import quoted, quoted_at, short
from attn_cli.settings.declare import as_typed
from attn_cli.settings.output import View
from attn_cli.settings.settings import ALL, DEFAULTS, MEAN, NORM, USUAL, WITH_RESIDUAL
from attn_cli.text.tokenize import PRONOUNS
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Trace

# What the last line of a command's screen names: at most two commands, and what each answers.
NEXT = {
    "self": (("attn explain TEXT", "why these weights"), ("attn self TEXT --head all", "every head")),
    "masked": (
        ("attn explain TEXT", "why these weights"),
        ("attn masked TEXT --mask none", "the same without a mask"),
    ),
    "cross": (
        ("attn explain TEXT --context CONTEXT", "why these weights"),
        ("attn cross CONTEXT TEXT", "the other way round"),
    ),
}
USED = (
    "Cross-attention is used where one text reads another: a translation its source, a question an image, a decoder "
    "what its encoder made. The first text asks (Q), the second is read (K, V)."
)
# What the commands name themselves, and what changes no number
SAID = (
    *("model", "pair", "next", "next_at", "top", "full", "query", "versus"),
    *("threads", "max_text", "max_word"),
)
TIE = 1e-9  # between two weights
MOST_PAIRS, HALF = 3, 0.5  # of two texts: pairs of words that are named, and the least weight of one
MOST_OTHERS, MOST_READ = 3, 1000  # other rows that are named; words of a text in which they are looked for
LANGUAGE, CAUSAL = DEFAULTS["masked"].projection, DEFAULTS["masked"].mask
MAIN = {(one.projection, one.head) for one in DEFAULTS.values()}
SCREENS = (None, "table")  # the formats that somebody reads who may type on


def finding(trace: Trace) -> Iterator[Say]:
    """Yield a sentence: what the row in focus looks at most, and where most words look.

    `"jumped" looks most at "fox" (0.431); 6 of 9 words look most at a neighbour.`
    """
    if trace.query_ids is None or len(trace.shown_heads) > 1 or trace.has_layers:
        return
    row = _most_telling(trace)
    if trace.drawn == NORM:
        yield Say(_what_changes(trace, row))
        return
    first = looks_most_at(trace, trace.shown, row)
    most = "" if trace.asked else where_most_look(trace, trace.shown)
    pairs = "" if trace.asked or trace.is_self else _other_pairs(trace, trace.shown, row)
    yield Say(f"{first}{pairs}{'; ' * bool(most)}{most}.{_why_masked(trace)}")


def _what_changes(trace: Trace, row: int) -> str:
    """Return where most of the row in focus comes from, and which key's weights say least of what comes of them."""
    takes, (j, weight, effect) = "nothing", shares_apart(trace, trace.shown)
    for key, norm in links_of(trace.shown, row, 1):
        name = "itself" if trace.is_self and row == key else quoted_at(trace.key_tokens, key)
        takes = f"most from {name} (norm {plain(norm, 3)})"
    changed = f"{quoted_at(trace.key_tokens, j)} has {weight} of the weight and {effect} of the effect"
    changed = "weight and effect share out alike" if weight == effect else changed
    where = "in its row" if trace.asked else "over all rows"
    return f"{quoted_at(trace.query_tokens, row)} takes {takes}; {where} {changed}."


def norms_by_hand(trace: Trace, i: int) -> Columns:
    """Return query i's norms as products: each key's weight times the length of what its value becomes."""
    head, at = trace.shown, trace.row_in_arrays(i)
    assert head.norms is not None and head.lengths is not None  # here norms are the weights
    made = zip(*(M.tolist() for M in (head.norms[at], head.lengths, head.weights[at])), strict=True)
    rows = [[key, *map(four, row)] for key, row in zip(trace.key_tokens, made, strict=True) if row[0]]
    length = "‖v W_o‖" if "W_o" in trace.derived else "‖v‖"
    return Columns([f"{short(trace.query_tokens[i])}: key", "weight", f"times {length}", "norm"], rows)


def shares_apart(trace: Trace, head: Head) -> tuple[int, str, str]:
    """Return the key whose share of the listed rows' weights differs most from that of their norms, and both shares."""
    assert head.norms is not None  # here norms are the weights
    held = [trace.row_in_arrays(i) for i in trace.listed]
    weight, effect = (M[held].sum(axis=0) / (M[held].sum() or 1.0) for M in (head.norms, head.weights))
    j = int(abs(weight - effect).argmax())
    return j, share(float(weight[j])), share(float(effect[j]))


def _other_pairs(trace: Trace, head: Head, row: int) -> str:
    """Return `, "rug" at "mat" (0.882)`: other words than that of `row` that give another word at least half."""
    queries, keys = trace.query_tokens, trace.key_tokens
    found = [(i, *links[0]) for i in _choosers(trace) if (links := links_of(head, i))]
    strong = [(i, j, w) for i, j, w in found if w >= HALF and queries[i].casefold() != keys[j].casefold()]
    first = {queries[row].casefold(): -1}  # of each word the firmest row is named
    for i, _, _ in sorted(strong, key=lambda one: -one[2]):
        first.setdefault(queries[i].casefold(), i)
    named = list(first.values())[1:MOST_PAIRS]
    return "".join(
        f", {quoted_at(queries, i)} at {quoted_at(keys, j)} ({share(weight)})"
        for i, j, weight in strong
        if i in named
    )


def _most_telling(trace: Trace) -> int:
    """Return the row in focus; under a mask that whose strongest link is furthest above an even share of its keys."""
    if trace.asked or trace.mask is None or trace.condensed:
        return trace.focus[0]
    allowed = trace.mask.sum(axis=1)
    rows = (i for i in _choosers(trace) if links_of(trace.shown, i))
    most = max(
        rows, key=lambda i: links_of(trace.shown, i)[0][1] * allowed[trace.row_in_arrays(i)], default=None
    )
    return trace.focus[0] if most is None else most


def _why_masked(trace: Trace) -> str:
    """Return why a word may not look ahead, where a model guesses the next one: for that the mask exists."""
    found = trace.next_words
    if trace.kind != "masked" or trace.mask_name != "causal" or found is None or found.fills:
        return ""
    best = [f"{quoted(one.word)} ({share(one.probability)})" for one in found.words[:2]]
    guess = f"{quoted(found.token)} it expects {', then '.join(best)}"
    return f" The model learned to guess each next word, so no word may look ahead: after {guess}."


def looks_most_at(trace: Trace, head: Head, i: int) -> str:
    """Return `"jumped" looks most at "fox" (0.431)`, without a full stop."""
    query, links = quoted_at(trace.query_tokens, i), links_of(head, i)
    if not links:
        return f"{query} may look at nothing"
    j, weight = links[0]
    if len(links) > 1 and weight - links[1][1] < TIE:
        return f"{query} has no one word that it looks at most ({share(weight)} at {quoted_at(trace.key_tokens, j)})"
    key = "itself" if trace.is_self and i == j else quoted_at(trace.key_tokens, j)
    return f"{query} looks {'most' if weight < 1 else 'only'} at {key} ({share(weight)})"


def where_most_look(trace: Trace, head: Head) -> str:
    """Return where more than half of the words look most, `6 of 9 words look most at a neighbour`; else how many."""
    every = [(i, links) for i in _choosers(trace) if (links := links_of(head, i))]
    strongest = [(i, links[0][0]) for i, links in every if len(links) < 2 or links[0][1] - links[1][1] >= TIE]
    n = len(every)
    if n < 2 or not strongest:
        return ""
    words = "words" if n == len(trace.listed) - len(trace.pad_queries) else "words with a choice"
    for where, found in _places(trace, strongest).items():
        if 2 * found > n:
            share_of = f"{found:,} of {n:,}" if found < n else "both" if n == 2 else f"all {n:,}"
            return f"{share_of} {words} look most at {where}"
    different = len({j for _, j in strongest})
    return f"the {n:,} {words} look most at {different:,} different ones" if n > 2 else ""


def _choosers(trace: Trace) -> Sequence[int]:
    """Return the queries that may look at more than one key."""
    rows = [i for i in trace.listed if i not in trace.pad_queries]
    if trace.mask is None or trace.condensed:
        return rows
    allowed = trace.mask.sum(axis=1).tolist()
    return [i for i in rows if allowed[trace.row_in_arrays(i)] > 1]


def _places(trace: Trace, strongest: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Return how many of the (query, key) links lead to each kind of place."""
    (key, same), *_ = Counter(j for _, j in strongest).most_common(1)
    to_one = {quoted_at(trace.key_tokens, key): same}
    if not trace.is_self:
        alike = [trace.query_tokens[i].casefold() == trace.key_tokens[j].casefold() for i, j in strongest]
        return {"the same word": sum(alike)} | to_one
    apart = [j - i for i, j in strongest]
    kinds = {"themselves": (0,), "the word before": (-1,), "the word after": (1,), "a neighbour": (-1, 1)}
    return {where: sum(by in those for by in apart) for where, those in kinds.items()} | to_one


def what_next(trace: Trace, view: View) -> Iterator[Say]:
    """Yield the line that names the next commands, on a screen of a text."""
    if view.format in SCREENS and trace.query_ids is not None and trace.kind in NEXT:
        if trace.kind == "cross" and not trace.asked:
            yield Say(USED, quiet=True)
        first, *rest = NEXT[trace.kind]
        if trace.next_words is not None and trace.next_words_at is None and not trace.next_words.fills:
            rest = [("attn masked TEXT --next-at all", "the guess after each word")]
        row = _most_telling(trace)
        told = "" if row == trace.focus[0] or trace.asked else f" -q {row}"  # the row of the first sentence
        why = (first[0] + again(trace, first[0]) + told, first[1])
        if trace.mask_name in (None, "none") and rest and "--mask none" in rest[0][0]:
            rest = []  # it is this very screen
        others = ((command + again(trace, command), answer) for command, answer in rest)
        commands = [why] * trace.is_scored + [*others]  # made of other weights, it has no why
        if commands:
            yield next_commands(*commands)


def other_rows(trace: Trace) -> Iterator[Say]:
    """Yield which other rows are worth a look, those that look furthest and firmest first, and the next commands."""
    far = []
    for i in () if trace.asked or not MOST_OTHERS <= len(trace.key_tokens) <= MOST_READ else trace.listed:
        for j, weight in links_of(trace.shown, i, 1):
            if (
                i not in trace.focus
                and i not in trace.pad_queries
                and trace.query_tokens[i] != trace.key_tokens[j]
            ):
                far.append((trace.is_self and abs(i - j) > 1, weight, -i, j))
    found = [(-i, j, weight) for _, weight, i, j in sorted(far, reverse=True)[:MOST_OTHERS]]
    if found:
        told = [
            f"{quoted_at(trace.query_tokens, i)} (at {short(trace.key_tokens[j])}, {share(w)})"
            for i, j, w in found
        ]
        yield Say(f"Other rows worth a look: {', '.join(told)}.")
    is_cross = trace.has_second_input and trace.settings.pair is None
    text = "attn explain TEXT" + " --context CONTEXT" * is_cross
    text += again(trace, text)
    row = f"{text} -q {found[0][0] if found else 'WORD'}", ""
    if not found and not trace.asked and _has_pronoun(trace) and "antecedent" in text:
        row = f"attn explain TEXT -p {USUAL.projection}", "the main verb"
    yield next_commands(row, (f"{text} --versus WORD", "why not it?"))


def next_commands(*commands: tuple[str, str]) -> Say:
    """Return the line `Next: attn explain TEXT (why these weights), attn self TEXT --head all (every head)`."""
    return Say(f"Next: {', '.join(command + f' ({why})' * bool(why) for command, why in commands)}.")


def again(trace: Trace, command: str) -> str:
    """Return the options with which a command shows this again, but for its defaults and those that it names."""
    given, used = trace.settings, "cross" if trace.has_second_input else command.split()[1]
    default, of_language = DEFAULTS[used], given.projection == LANGUAGE
    name = given.projection or (USUAL.projection if trace.learned else None)
    tells_another = used == "explain" and not trace.asked and _has_pronoun(trace)  # unless a model is named
    is_main, mask = (name, given.head) in MAIN, given.mask or "none"
    given = replace(
        given,
        projection=None if name == default.projection and not tells_another else name,
        head=None if is_main or given.head in (ALL, MEAN) or "--head" in command else given.head,
        layer=None if is_main else given.layer,
        mask=None if "--mask" in command or mask == (CAUSAL if of_language else default.mask) else mask,
        score=None if given.score == "scaled" else given.score,
        measure=NORM if "--head" in command and given.measure == WITH_RESIDUAL else given.measure,
        keep_punctuation=given.keep_punctuation and not of_language,
    )
    typed = as_typed(given, SAID, short=True)
    pair = " --pair TEXT" * (given.pair is not None)
    return " -m DIR" * trace.of_model + pair + "".join(f" {shell_quote(part)}" for part in typed)


def _has_pronoun(trace: Trace) -> bool:
    """Tell whether `attn explain` may tell another story of this text: what a pronoun stands for."""
    return any(token.lower() in PRONOUNS for token in trace.query_tokens)
