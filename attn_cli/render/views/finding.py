"""What was found, in words, and what to type next: the first and last sentence of most screens, and parts of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from attn_cli.errors import shell_quote
from attn_cli.io.types import replace
from attn_cli.render import Columns, Say, four, plain, quoted, quoted_at, share, short
from attn_cli.render.views.long_text import firsts, links_of, own_rows
from attn_cli.render.views.wording import key_named
from attn_cli.settings import ALL, DEFAULTS, MEAN, NORM, USUAL, WITH_RESIDUAL, View, as_typed
from attn_cli.text.tokenize import PRONOUNS
from attn_cli.trace import Head, Trace

WHY = "why these weights"
# What the last line of a command's screen names: at most two commands, and what each answers.
NEXT = {
    "self": (("attn explain TEXT", WHY), ("attn self TEXT --head all", "every head")),
    "masked": (("attn explain TEXT", WHY), ("attn masked TEXT --mask none", "the same without a mask")),
    "cross": (
        ("attn explain TEXT --context CONTEXT", WHY),
        ("attn cross CONTEXT TEXT", "the other way round"),
    ),
}
USED = (
    "Cross-attention is used where one text reads another: a translation its source, a question an image, a decoder "
    "what its encoder made. The first text asks (Q), the second is read (K, V)."
)
# What the commands name themselves, and what changes no number
SAID = [
    "model", "pair", "next", "next_at", "top", "full", "query", "versus", "threads", "max_text", "max_word",
]  # fmt: skip
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
    row, found, why = _most_telling(trace), trace.next_words, ""
    if trace.drawn == NORM:
        # Where most of the row comes from, and which key's weight says least of what comes of it.
        takes, (j, weight, effect) = "nothing", shares_apart(trace, trace.shown)
        for key, norm in links_of(trace.shown, row, 1):
            takes = f"most from {key_named(trace, row, key)} (norm {plain(norm, 3)})"
        changed = f"{quoted_at(trace.key_tokens, j)} has {weight} of the weight and {effect} of the effect"
        changed = "weight and effect share out alike" if weight == effect else changed
        where = "in its row" if trace.asked else "over all rows"
        yield Say(f"{quoted_at(trace.query_tokens, row)} takes {takes}; {where} {changed}.")
        return
    most = "" if trace.asked else where_most_look(trace, trace.shown)
    pairs = "" if trace.asked or trace.is_self else _other_pairs(trace, row)
    # Why a word may not look ahead, where a model guesses the next one: for that the mask exists.
    if trace.kind == "masked" and trace.mask_name == "causal" and found is not None and not found.fills:
        best = ", then ".join(f"{quoted(one.word)} ({share(one.probability)})" for one in found.words[:2])
        why = " The model learned to guess each next word, so no word may look ahead: "
        why += f"after {quoted(found.token)} it expects {best}."
    yield Say(f"{looks_most_at(trace, trace.shown, row)}{pairs}{'; ' * bool(most)}{most}.{why}")


def norms_by_hand(trace: Trace, i: int) -> Columns:
    """Return query i's norms as products: each key's weight times the length of what its value becomes."""
    head, at = trace.shown, trace.row_in_arrays(i)
    assert head.norms is not None and head.lengths is not None  # here norms are the weights
    made = zip(trace.key_tokens, head.norms[at], head.lengths, head.weights[at], strict=True)
    rows = [[key, *map(four, map(float, row))] for key, *row in made if row[0]]
    length = "‖v W_o‖" if "W_o" in trace.derived else "‖v‖"
    return Columns([f"{short(trace.query_tokens[i])}: key", "weight", f"times {length}", "norm"], rows)


def shares_apart(trace: Trace, head: Head) -> tuple[int, str, str]:
    """Return the key whose share of the listed rows' weights differs most from that of their norms, and both shares."""
    assert head.norms is not None  # here norms are the weights
    held = [trace.row_in_arrays(i) for i in trace.listed]
    weight, effect = (M[held].sum(axis=0) / (M[held].sum() or 1.0) for M in (head.norms, head.weights))
    j = int(abs(weight - effect).argmax())
    return j, share(float(weight[j])), share(float(effect[j]))


def _other_pairs(trace: Trace, row: int) -> str:
    """Return `, "rug" at "mat" (0.882)`: other words than that of `row` that give another word at least half."""
    queries, keys = trace.query_tokens, trace.key_tokens
    found = [one for one in firsts(trace.shown, _choosers(trace)) if one[2] >= HALF]
    strong = [one for one in found if queries[one[0]].casefold() != keys[one[1]].casefold()]
    first = {queries[row].casefold(): -1}  # of each word the firmest row is named
    for i, _, _ in sorted(strong, key=lambda one: -one[2]):
        first.setdefault(queries[i].casefold(), i)
    named = [one for one in strong if one[0] in [*first.values()][1:MOST_PAIRS]]
    return "".join(f", {quoted_at(queries, i)} at {quoted_at(keys, j)} ({share(w)})" for i, j, w in named)


def _most_telling(trace: Trace) -> int:
    """Return the row in focus; under a mask that whose strongest link is furthest above an even share of its keys."""
    if trace.asked or trace.mask is None or trace.condensed:
        return trace.focus[0]
    allowed, found = trace.mask.sum(axis=1), firsts(trace.shown, _choosers(trace))
    return max(found, key=lambda one: one[2] * allowed[one[0]], default=trace.focus)[0]


def looks_most_at(trace: Trace, head: Head, i: int) -> str:
    """Return `"jumped" looks most at "fox" (0.431)`, without a full stop."""
    query, links = quoted_at(trace.query_tokens, i), links_of(head, i, 2)
    if not links:
        return f"{query} may look at nothing"
    (j, weight), *rest = links
    if rest and weight - rest[0][1] < TIE:
        return f"{query} has no one word that it looks at most ({share(weight)} at {quoted_at(trace.key_tokens, j)})"
    return f"{query} looks {'most' if weight < 1 else 'only'} at {key_named(trace, i, j)} ({share(weight)})"


def where_most_look(trace: Trace, head: Head) -> str:
    """Return where more than half of the words look most, `6 of 9 words look most at a neighbour`; else how many."""
    every = [(i, links) for i in _choosers(trace) if (links := links_of(head, i, 2))]
    strongest = [(i, links[0][0]) for i, links in every if len(links) < 2 or links[0][1] - links[1][1] >= TIE]
    n, different = len(every), Counter(j for _, j in strongest)
    if n < 2 or not strongest:
        return ""
    words = "words" if n == len(own_rows(trace)) else "words with a choice"
    if trace.is_self:
        by = Counter(j - i for i, j in strongest)
        places = {"themselves": by[0], "the word before": by[-1], "the word after": by[1]}
        places["a neighbour"] = by[-1] + by[1]
    else:
        pairs = ((trace.query_tokens[i].casefold(), trace.key_tokens[j].casefold()) for i, j in strongest)
        places = {"the same word": sum(query == key for query, key in pairs)}
    (key, same), *_ = different.most_common(1)
    for where, found in (places | {quoted_at(trace.key_tokens, key): same}).items():
        if 2 * found > n:
            share_of = f"{found:,} of {n:,}" if found < n else "both" if n == 2 else f"all {n:,}"
            return f"{share_of} {words} look most at {where}"
    return f"the {n:,} {words} look most at {len(different):,} different ones" if n > 2 else ""


def _choosers(trace: Trace) -> Sequence[int]:
    """Return the queries that may look at more than one key."""
    mask = None if trace.condensed else trace.mask
    return [i for i in own_rows(trace) if mask is None or mask[i].sum() > 1]


def what_next(trace: Trace, view: View) -> Iterator[Say]:
    """Yield the line that names the next commands, on a screen of a text."""
    if view.format not in SCREENS or trace.query_ids is None or trace.kind not in NEXT:
        return
    if trace.kind == "cross" and not trace.asked:
        yield Say(USED, quiet=True)
    (first, why), (other, answer) = NEXT[trace.kind]
    if trace.next_words is not None and trace.next_words_at is None and not trace.next_words.fills:
        other, answer = "attn masked TEXT --next-at all", "the guess after each word"
    row = _most_telling(trace)
    told = "" if row == trace.focus[0] or trace.asked else f" -q {row}"  # the row of the first sentence
    is_here = trace.mask_name in (None, "none") and "--mask none" in other  # it is this very screen
    commands = []
    if trace.is_scored:  # weights made of others have no why
        commands.append((first + again(trace, first) + told, why))
    if not is_here:
        commands.append((other + again(trace, other), answer))
    if commands:
        yield next_commands(*commands)


def other_rows(trace: Trace) -> Iterator[Say]:
    """Yield which other rows are worth a look, those that look furthest and firmest first, and the next commands."""
    queries, keys, far = trace.query_tokens, trace.key_tokens, []
    if not trace.asked and MOST_OTHERS <= len(keys) <= MOST_READ:
        rows = [i for i in own_rows(trace) if i not in trace.focus]
        far = [one for one in firsts(trace.shown, rows) if queries[one[0]] != keys[one[1]]]
    far.sort(key=lambda one: (not (trace.is_self and abs(one[0] - one[1]) > 1), -one[2], one[0]))
    if found := far[:MOST_OTHERS]:
        told = [f"{quoted_at(queries, i)} (at {short(keys[j])}, {share(w)})" for i, j, w in found]
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
