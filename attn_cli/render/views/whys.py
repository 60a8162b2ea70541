"""Why a row comes out as it does, and why each step is there: sentences with the numbers of the row that is walked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import numpy as np

from attn_cli.core.attention import softmax
from attn_cli.core.scores import position_scale_of, score_named
from attn_cli.errors import count
from attn_cli.io.types import NamedTuple
from attn_cli.render import Columns, four, plain, quoted, quoted_at, share
from attn_cli.render.views import long_text, step_sentences, wording
from attn_cli.trace import Because, Head, Row, Trace

MOST_SHARES, LEAST_SHARE, MOST_RIVALS = 3, 0.005, 4
NEARLY_ALL, LEAST_SPREAD, LARGEST_LEAD, LIKELY = 0.9, 0.01, 50, 0.5


class Walked(NamedTuple):
    """The row that a screen walks: its trace, its head and its numbers."""

    trace: Trace
    head: Head
    row: Row

    @property
    def query(self) -> str:
        """The token that looks, in quotation marks."""
        return quoted_at(self.trace.query_tokens, self.row.query)


def walked(trace: Trace, i: int) -> Walked | None:
    """Return the row of query i; None where it has no arithmetic, or may look at nothing."""
    head = trace.stepped_head
    row = trace.row(i, head)
    return None if row is None or row.total == 0 else Walked(trace, head, row)


# Why the winner won


def reasons(
    trace: Trace, row: Row, found: list[Because], listed: Collection[int] | None = None
) -> Iterator[str]:
    """Yield a sentence for each rival, and one on what content and distance alone would choose.

    `listed` are the keys that the table above has, if not all.
    """
    order = row.strongest
    for one in found[:MOST_RIVALS]:
        yield _reason(trace, row, one, ", the runner-up" if one.rival_index in order[1:2] else "")
    if more := found[MOST_RIVALS:]:
        is_listed = listed is None or all(one.rival_index in listed for one in more)
        has = "the table has them" if is_listed else "--by-hand all lists them"
        yield f"{count(len(more), 'more place', 'more places')} of {quoted(more[-1].rival)}: {has}."
    if order[0] in trace.named_rivals:
        yield f"{_named(trace, row, order[0])} is the winner."
    if found and row.position is not None:
        yield _alone(trace, row, row.position)


def _named(trace: Trace, row: Row, j: int) -> str:
    """Return a key in quotation marks, as the subject of a sentence: `"sat" itself`."""
    return quoted_at(trace.key_tokens, j) + " itself" * (trace.is_self and j == row.query)


def _reason(trace: Trace, row: Row, one: Because, whose: str) -> str:
    winner, rival = (_named(trace, row, j) for j in (one.winner_index, one.rival_index))
    question = f"Why {winner} and not {rival}{whose}?"
    if one.decided == "mask":
        return f"{question} The mask: {quoted_at(trace.query_tokens, row.query)} may not look at {rival}."
    if one.lead <= 0 or row.weights[one.winner_index] == row.weights[one.rival_index] > 0:
        return f"{question} Both get the same weight."
    if one.distance is None:
        content = (
            score_named(trace.score).symbol + wording.divisor(trace) if row.capped is None else "capped score"
        )
        alone = "There is no distance term: content alone decides"
        if trace.placed is not None or trace.of_model:
            alone = "Content decides, and the words' places are part of it"
        return f"{question} Its {content} is {four(one.lead)} higher. {alone}."
    by = (one.content, one.distance)
    content, distance = (f"{four(abs(x))} {'ahead' if x >= 0 else 'behind'}" for x in by)
    terms = f"content puts it {content}, distance {distance}"
    terms = terms if one.content else f"content is the same, distance puts it {distance}"
    decides = "both decide alike" if one.decided == "both" else f"{one.decided} decides"
    return f"{question} Its sum is {four(one.lead)} higher: {terms}. Against {rival}, {decides}."


def _alone(trace: Trace, row: Row, position: list[float]) -> str:
    told, chosen, who = list[str](), [], f" {quoted_at(trace.query_tokens, row.query)} would choose"
    for term, values in (("content", row.content), ("distance", position)):
        best, *rest = sorted(row.strongest, key=lambda j: -values[j])
        if rest and not row.lead(values, best, rest[0]):
            told.append(f"{term} alone cannot choose, for several keys share its largest value")
            continue
        told.append(f"by {term} alone{who} {wording.key_named(trace, row.query, best)}")
        chosen.append(best)
        who = ""  # said once
    if chosen == [row.strongest[0]] * 2:
        choice = _named(trace, row, row.strongest[0])
        return f"Content alone would choose {choice}, and so would distance alone."
    text = (", " if len(chosen) == 2 else "; ").join(told)
    return f"{text[0].upper()}{text[1:]}."


# Why there is each step


def why(name: str, of: Walked) -> str:
    """Return why there is the step of that name, in a sentence or two; empty where nothing is to be said."""
    return RATIONALES[name](of) if name in RATIONALES else ""


def _tokens(of: Walked) -> str:
    trace, i = of.trace, of.row.query
    kind = "a character" if trace.settings.tokenizer == "characters" else "a word or a mark"
    what = f"A token is {kind}."
    if trace.of_model:
        kinds = "words, pieces of words, and signs of its own"
        what = f"The tokens are those of {trace.embedding.name}: {kinds}."
    if trace.x_query is None:
        return what
    numbers, about = count(trace.x_query.shape[1], "number", "numbers"), step_sentences.source(trace, i)
    if trace.of_model or (trace.learned and trace.projection.layer):
        return f"{what} {of.query} enters this layer as {numbers}{', x' * trace.of_model}; {about}."
    if trace.embedding.source == "given" or i in trace.pad_queries:
        return f"{what} {of.query} starts as {numbers}; {about}."
    token = trace.query_tokens[i]
    if token in trace.replaced:
        about = f"as for {of.query}, it is that of {quoted(trace.replaced[token])}"
    elif token in trace.unknown:
        about = f"as for {of.query}, {about}"
    elif trace.unknown:
        about += f", but not that of {quoted(trace.unknown[0])}{' and others' * (len(trace.unknown) > 1)}"
    return f"A token, {kind}, has an id and one vector of {numbers} in any text; {about}."


def _projections(of: Walked) -> str:
    """Return why Q, K and V are three: what is passed on is not what is matched."""
    trace, head, _ = of
    own, is_one = "", len(trace.head_names) == 1
    if step_sentences.keeps_values(trace, head) or (trace.projection.source == "identity" and is_one):
        own = " (its own vector: W_v is the identity)"
    elif trace.learned is not None and trace.learned.values == "words":
        own = " (nearly its own vector: W_v was fitted so)"
    apart = "" if trace.is_self else " Queries come from the one text, keys and values from the other."
    return f"A word searches with its query q, is matched by its key k, passes on its value v{own}.{apart}"


def _symmetry(of: Walked) -> str:
    trace, head, row = of
    other = next((j for j in row.strongest if j != row.query), None)
    if not trace.is_self or other is None or head.scores is None or trace.condensed:
        return ""
    there, back = row.scores[other], float(head.scores[other, row.query])
    symbol, key = score_named(trace.score).symbol, quoted_at(trace.key_tokens, other)
    pair = f"{symbol} of {of.query} with {key} is {plain(there, 2)}, reversed {plain(back, 2)}"
    if not math.isclose(there, back, rel_tol=1e-9, abs_tol=1e-12):
        return f"Scores are not symmetric: {pair}."
    is_equal = head.q is not None and head.k is not None and (head.q == head.k).all()
    return f"Here queries and keys are equal, so scores are symmetric: {pair}." if is_equal else ""


def _undivided(of: Walked) -> list[float]:
    """Return the row's weights, were its scores not divided by sqrt(d_k); empty where these are too large."""
    trace, head, row = of
    is_learned = head.position_vectors is not None or row.is_rotated
    times = 1 / position_scale_of(trace.score, wording.d_k(trace)) if is_learned else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        content, distance = np.array(row.scores) / trace.temperature, times * np.array(row.position or 0.0)
        if row.is_rotated:  # content and distance are one score
            content, distance = content + distance, np.array(0.0)
        if trace.softcap is not None:
            cap = trace.softcap / trace.temperature
            content = cap * np.tanh(content / cap)
        sums = np.where(np.isneginf(row.masked), -np.inf, content + distance)
        sink = None if head.sink is None else head.sink / trace.temperature
        weights: list[float] = softmax(sums, sink).tolist() if np.isfinite(sums.max()) else []
    return weights


def _scaling(of: Walked) -> str:
    trace, _, row = of
    n = wording.d_k(trace)
    if trace.own_scale is not None:
        return f"{trace.embedding.name} multiplies by {plain(trace.own_scale)}, not by 1/√d_k = {plain(n**-0.5)}."
    if not score_named(trace.score).is_scaled or n < 2 or len(row.strongest) < 2:
        return ""
    scaled = [row.scores[j] * trace.scale for j in row.strongest]
    weights = _undivided(of)
    if max(scaled) - min(scaled) < LEAST_SPREAD or not weights or of.head.scores is None:
        return ""
    top = max(row.strongest, key=lambda j: weights[j])
    spread = float(np.std(of.head.scores))
    peak = ": hardly a mix" if weights[top] >= NEARLY_ALL > row.weights[top] else ""
    return (
        f"Why divide by √d_k = √{n}? A score sums {n} products, and the spread of such a sum grows as the root of "
        f"{n}. The scores of this text spread by {plain(spread, 2)} (standard deviation), divided by "
        f"{plain(spread * trace.scale, 2)}. Undivided, {quoted_at(trace.key_tokens, top)} would get "
        f"{share(weights[top])}{peak}."
    )


def _distance(of: Walked) -> str:
    trace, head, row = of
    if row.position is None:
        return ""
    if row.is_rotated:
        each = (
            "q and k are turned by an angle for each place (rotary positions, Su et al. 2021), so a score depends "
            "on how far apart two words stand"
        )
    elif head.position_vectors is not None:
        each = "each distance has an r and a b, learned (relative positions, Shaw et al. 2018)"
    elif trace.of_model:
        each = "each head adds {}, {} ({})".format(*wording.distance_of_model(head))
    else:
        return "The distance term was given: it is added to the scaled scores."
    blind = "q·k is blind to the order of the words; "
    return f"Why distance? {'Here, as in the layers below, ' if trace.projection.layer else blind}{each}."


def _mask(of: Walked) -> str:
    trace, _, row = of
    i, use = row.query, "a model that predicts the next word may not see it"
    if trace.mask is not None:
        hidden = [j for j in range(len(row.masked)) if row.is_masked(j) and j not in trace.pad_keys]
        if trace.is_self and trace.mask_name.startswith("causal"):
            later = count(sum(j > i for j in hidden), "word", "words")
            has_later = max(hidden, default=-1) > i
            those = f"the {later} after {of.query}" if has_later else "from every word those after it"
            return f"Why a causal mask? It hides {those}: {use}."
        gets = "it gets" if len(hidden) == 1 else "they get"
        words = count(len(hidden), "word", "words")
        return f"The mask ({trace.mask_name}) hides {words} from {of.query}: {gets} no weight."
    if not trace.is_self:
        return ""
    if not (after := len(trace.key_tokens) - 1 - i):
        return f"No mask here. A causal mask (--mask causal) hides from a word those after it: {use}."
    those = f"the {count(after, 'word', 'words')} after it ({share(sum(row.weights[i + 1 :]))})"
    hides = f"A causal mask (--mask causal) hides {'them' if after > 1 else 'it'}: {use}."
    return f"No mask here: {of.query} also looks at {those}. {hides}"


def _softmax(of: Walked) -> str:
    trace, _, row = of
    total = "Softmax: exp / sum of exps; rows sum to 1."
    if of.head.sink is not None:
        total = "Softmax: exp / (sum of exps + exp(sink)); rows sum to 1 with the sink's share, which has no value."
    if len(row.strongest) < 2 or row.weights[row.strongest[1]] == 0:
        return f"Why exp? It is positive. {total}"
    first, second = row.strongest[:2]
    lead = row.masked[first] - row.masked[second]
    turns = "Why exp? It is positive and turns differences into ratios"
    if not LEAST_SPREAD <= lead < LARGEST_LEAD:
        return f"{turns}. {total}"
    times = plain(row.weights[first] / row.weights[second], 2)
    other = _named(trace, row, second) + " after the cap" * (row.capped is not None)
    return f"{turns}: {plain(lead)} above {other} is e^{plain(lead)} = {times} times its weight. {total}"


CAP = (
    "Why a soft cap? tanh leaves small scores nearly as they are and bends large ones, so that no key's score can run "
    "away from the others; the order stays."
)
RATIONALES: dict[str, Callable[[Walked], str]] = {
    "tokens": _tokens,
    "W_q": _projections,
    "k": _symmetry,
    "scaled_scores": _scaling,
    "position_scores": _distance,
    "capped_scores": lambda of: "" if of.row.capped is None else CAP,
    "masked_scores": _mask,
    "weights": _softmax,
}


def mixture(of: Walked) -> str:
    """Return what an output is, as a mix of values, and the words nearest to it."""
    trace, _, row = of
    keys = [j for j in row.strongest[:MOST_SHARES] if row.weights[j] >= LEAST_SHARE] or row.strongest[:1]
    mix = " + ".join(f"{share(row.weights[j])} v({quoted_at(trace.key_tokens, j)})" for j in keys)
    rest = " + ..." if len(row.strongest) > len(keys) else ""
    new = f"The output of {of.query}, its new vector, is {mix}{rest}"
    if trace.shown.scores is None or trace.output_words is None or not trace.output_words[row.query]:
        return new if rest else f"{new}."
    near = ", ".join(f"{word} {share(cosine)}" for word, cosine in trace.output_words[row.query])
    return f"{new}; closest by cosine: {near}."


def output(of: Walked) -> str:
    """Return the mix that an output is, the words near it, the word it began as, and what it is for."""
    trace, i, head = of.trace, of.row.query, of.head
    told = mixture(of).removesuffix(".")
    is_word = trace.shown.scores is not None and bool(trace.output_words and trace.output_words[i])
    if is_word and trace.is_self and head.output is not None and head.v is not None and head.v[i].any():
        lengths = float(np.linalg.norm(head.output[i]) * np.linalg.norm(head.v[i]))
        cosine = float(head.output[i] @ head.v[i]) / lengths if lengths else 0.0
        told += f"; to {of.query}, which it began as, {share(cosine) if cosine > 0 else plain(cosine, 3)}"
    return f"{told}. What for? In a model the next layer reads it; after the last, the next word is guessed from it."


def several_heads(of: Walked) -> Iterator[Columns]:
    """Yield what the same word looks at under three other heads, those that find different words first."""
    trace, i, found = of.trace, of.row.query, dict[int, tuple[str, float]]()
    others = [head for head in trace.heads if head.name != trace.shown.name]
    if trace.settings.head in ("all", "mean") or trace.condensed or len(others) < MOST_SHARES:
        return
    links = [(head.name, *link) for head in others for link in long_text.links_of(head, i, 1)]
    links.sort(key=lambda link: (link[1] == i, link[2] < LIKELY))  # what looks at itself found nothing
    for name, j, weight in links:
        found.setdefault(j, (name, weight))
    rows = [[name, wording.key_named(trace, i, j), share(w)] for j, (name, w) in found.items()]
    yield Columns(["head", "looks at", "weight"], rows[:MOST_SHARES])


def heads(of: Walked, are_shown: bool) -> str:
    """Return what a head is, and why there are several; others may follow."""
    more = ". Others (may err):" if are_shown else ". Others ask others (--head)."
    more = "; models have several." if len(of.trace.head_names) == 1 else more
    return f"A head is one set of W_q, W_k, W_v: one question to the text{more}"
