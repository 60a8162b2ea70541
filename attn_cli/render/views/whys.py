"""Why each step is there: one sentence each, with the numbers of the row that is walked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_cli.core.scores import position_scale_of, score_named
from attn_cli.io.escape import count
from attn_cli.render.numbers import four, plain, share
from attn_cli.render.views.step_sentences import source
from attn_cli.render.views.wording import d_k, quoted, quoted_at, root_divisor, temperature_divisor
from attn_cli.trace.head import Head
from attn_cli.trace.row import Because, Row
from attn_cli.trace.trace import Trace

MOST_SHARES, LEAST_SHARE = 3, 0.005
NEARLY_ALL, LEAST_SPREAD, LARGEST_LEAD = 0.9, 0.01, 50


class Walked(NamedTuple):
    """The row that a screen walks: its trace, its head and its numbers."""

    trace: Trace
    head: Head
    row: Row

    @property
    def query(self) -> str:
        """The token that looks, in quotation marks."""
        return quoted_at(self.trace.query_tokens, self.row.query)

    @property
    def winner(self) -> int:
        """The key with the largest weight."""
        return self.row.strongest[0]

    def key(self, j: int) -> str:
        """Return a key in quotation marks, or `itself`."""
        return key_named(self.trace, self.row, j)


def walked(trace: Trace, i: int) -> Walked | None:
    """Return the row of query i; None where it has no arithmetic, or may look at nothing."""
    head = trace.stepped_head
    row = trace.row(i, head)
    return None if row is None or row.total == 0 else Walked(trace, head, row)


def why(name: str, of: Walked) -> str:
    """Return why there is the step of that name, in a sentence or two; empty where nothing is to be said."""
    sentence = RATIONALES.get(name)
    return sentence(of) if sentence else ""


def _tokens(of: Walked) -> str:
    """Return what a token is, and why the same one has the same vector."""
    trace, i = of.trace, of.row.query
    kind = "a character" if trace.settings.tokenizer == "characters" else "a word or a mark"
    if trace.of_model:
        text = (
            f"The tokens are those of {trace.embedding.name}: words, pieces of words, and signs of its own."
        )
        if trace.x_query is None:
            return text
        numbers = count(trace.x_query.shape[1], "number", "numbers")
        return f"{text} {of.query} enters this layer as {numbers}, x; {source(trace, i)}."
    if trace.x_query is None:
        return f"A token is {kind}."
    numbers = count(trace.x_query.shape[1], "number", "numbers")
    if trace.learned and trace.projection.layer:
        return f"A token is {kind}. {of.query} enters this layer as {numbers}; {source(trace, i)}."
    if trace.embedding.source == "given" or i in trace.pad_queries:
        return f"A token is {kind}. {of.query} starts as {numbers}; {source(trace, i)}."
    about, token = source(trace, i), trace.query_tokens[i]
    if token in trace.replaced:
        about = f"as for {of.query}, it is that of {quoted(trace.replaced[token])}"
    elif token in trace.unknown:
        about = f"as for {of.query}, {about}"
    elif trace.unknown:
        about += f", but not that of {quoted(trace.unknown[0])}{' and others' * (len(trace.unknown) > 1)}"
    return f"A token, {kind}, has an id and one vector of {numbers} in any text; {about}."


def _projections(of: Walked) -> str:
    """Return why Q, K and V are three: scores are not symmetric, and what is passed on is not what is matched."""
    trace, row, head = of.trace, of.row, of.head
    parts = "A word searches with its query q, is matched by its key k, passes on its value v"
    if not trace.is_self:
        return f"{parts}. Queries come from the one text, keys and values from the other."
    other = next((j for j in row.strongest if j != row.query), None)
    if other is None or head.scores is None or trace.condensed:
        return f"{parts}."
    there, back = row.scores[other], float(head.scores[other, row.query])
    symbol = score_named(trace.score).symbol
    pair = f"{symbol} of {of.query} with {of.key(other)} is {plain(there, 2)}, reversed {plain(back, 2)}"
    if math.isclose(there, back, rel_tol=1e-9, abs_tol=1e-12):
        if head.q is None or head.k is None or not (head.q == head.k).all():
            return f"{parts}."
        return f"{parts}. Here queries and keys are equal, so scores are symmetric: {pair}."
    return f"{parts}. Scores are not symmetric: {pair}."


def undivided(of: Walked) -> list[float]:
    """Return the weights that the softmax would give to the row if its scores were not divided by sqrt(d_k).

    Empty where these scores are too large for numbers.
    """
    trace, row = of.trace, of.row
    times = 1.0
    if row.position is not None and (of.head.position_vectors is not None or row.is_rotated):
        times = 1 / position_scale_of(trace.score, d_k(trace))
    added = row.position or [0.0] * len(row.scores)
    cap = (trace.softcap or math.inf) / trace.temperature
    sums = []
    for j, score in enumerate(row.scores):
        before, after = score / trace.temperature, times * added[j]
        if row.is_rotated:
            before, after = before + after, 0.0
        capped = before if cap == math.inf else cap * math.tanh(before / cap)
        sums.append(-math.inf if row.is_masked(j) else capped + after)
    if not math.isfinite(max(sums)):
        return []
    exps = [math.exp(s - max(sums)) for s in sums]
    return [e / sum(exps) for e in exps]


def _scaling(of: Walked) -> str:
    """Return why scores are divided by the root of d_k: their spread before and after, and what undivided gives."""
    trace, row, n = of.trace, of.row, d_k(of.trace)
    if trace.own_scale is not None:
        return f"{trace.embedding.name} multiplies by {plain(trace.own_scale)}, not by 1/√d_k = {plain(n**-0.5)}."
    if not score_named(trace.score).is_scaled or n < 2 or len(row.strongest) < 2:
        return ""
    raw = [row.scores[j] for j in row.strongest]
    scaled = [score * trace.scale for score in raw]
    weights = undivided(of)
    if max(scaled) - min(scaled) < LEAST_SPREAD or not weights:
        return ""
    top = max(row.strongest, key=lambda j: weights[j])
    before, after = (f"{plain(min(part), 2)} to {plain(max(part), 2)}" for part in (raw, scaled))
    peak = ": hardly a mix" if weights[top] >= NEARLY_ALL > row.weights[top] else ""
    return (
        f"Why divide by √d_k = √{n}? Sums of {n} products spread widely: {before} before, {after} after. "
        f"Without it, {quoted_at(trace.key_tokens, top)} would get {share(weights[top])}{peak}."
    )


def _distance(of: Walked) -> str:
    if of.row.position is None:
        return ""
    each = "each distance has an r and a b, learned (relative positions, Shaw et al. 2018)"
    if of.row.is_rotated:
        each = (
            "q and k are turned by an angle for each place (rotary positions, Su et al. 2021), so a score depends "
            "on how far apart two words stand"
        )
    elif of.head.position_vectors is None and of.trace.of_model:
        each = "each head adds a learned number for each range of distances (Raffel et al. 2020)"
    elif of.head.position_vectors is None:
        return "The distance term was given: it is added to the scaled scores."
    if of.trace.projection.layer:
        return f"Why distance? Here, as in the layers below, {each}."
    return f"Why distance? q·k is blind to the order of the words; {each}."


def _cap(of: Walked) -> str:
    if of.row.capped is None:
        return ""
    return (
        "Why a soft cap? tanh leaves small scores nearly as they are and bends large ones, so that no key's score "
        "can run away from the others; the order stays."
    )


def _mask(of: Walked) -> str:
    """Return what a causal mask is for: predicting the next word."""
    trace, i = of.trace, of.row.query
    use = "a model that predicts the next word may not see it"
    if trace.mask is not None:
        return _why_masked(of, use)
    if not trace.is_self:
        return ""
    after = len(trace.key_tokens) - 1 - i
    if not after:
        return f"No mask here. A causal mask (attn masked) hides from a word those after it: {use}."
    weight = share(sum(of.row.weights[i + 1 :]))
    ahead = f"No mask here: {of.query} also looks at the {count(after, 'word', 'words')} after it ({weight})"
    return f"{ahead}. A causal mask (attn masked) hides {'them' if after > 1 else 'it'}: {use}."


def _why_masked(of: Walked, use: str) -> str:
    trace, i = of.trace, of.row.query
    hidden = [j for j in range(len(of.row.masked)) if of.row.is_masked(j) and j not in trace.pad_keys]
    if trace.is_self and trace.mask_name.startswith("causal"):
        later = sum(j > i for j in hidden)
        hides = (
            f"the {count(later, 'word', 'words')} after {of.query}"
            if later
            else "from every word those after it"
        )
        return f"Why a causal mask? It hides {hides}: {use}."
    gets = "it gets" if len(hidden) == 1 else "they get"
    words = count(len(hidden), "word", "words")
    return f"The mask ({trace.mask_name}) hides {words} from {of.query}: {gets} no weight."


def _softmax(of: Walked) -> str:
    """Return why exp, and why a row sums to one."""
    trace, row, order = of.trace, of.row, of.row.strongest
    total = "Softmax: exp / sum of exps; rows sum to 1."
    if len(order) < 2 or row.weights[order[1]] == 0:
        return f"Why exp? It is positive. {total}"
    lead = row.masked[order[0]] - row.masked[order[1]]
    if not LEAST_SPREAD <= lead < LARGEST_LEAD:
        return f"Why exp? It is positive and turns differences into ratios. {total}"
    times = row.weights[order[0]] / row.weights[order[1]]
    after = " after the cap" if row.capped is not None else ""
    return (
        f"Why exp? It is positive and turns differences into ratios: {plain(lead)} above "
        f"{named(trace, row, order[1])}{after} is e^{plain(lead)} = {plain(times, 2)} times its weight. {total}"
    )


def mixture(of: Walked) -> str:
    """Return what an output is, as a mix of values, and the words nearest to it."""
    trace, row = of.trace, of.row
    keys = [j for j in row.strongest[:MOST_SHARES] if row.weights[j] >= LEAST_SHARE] or row.strongest[:1]
    mix = " + ".join(f"{share(row.weights[j])} v({quoted_at(trace.key_tokens, j)})" for j in keys)
    rest = " + ..." if len(row.strongest) > len(keys) else ""
    new = f"The output of {of.query}, its new vector, is {mix}{rest}"
    if trace.shown.scores is None or trace.output_words is None or not trace.output_words[row.query]:
        return new if rest else f"{new}."
    near = ", ".join(f"{word} {share(cosine)}" for word, cosine in trace.output_words[row.query])
    return f"{new}; closest by cosine: {near}."


def heads(of: Walked) -> str:
    """Return what a head is, and why there are several."""
    what = "A head is one set of W_q, W_k, W_v: one question to the text"
    return (
        f"{what}; models have several."
        if len(of.trace.head_names) == 1
        else f"{what}. Another question takes another head."
    )


RATIONALES: dict[str, Callable[[Walked], str]] = {
    "tokens": _tokens,
    "W_q": _projections,
    "scaled_scores": _scaling,
    "position_scores": _distance,
    "capped_scores": _cap,
    "masked_scores": _mask,
    "weights": _softmax,
}
MOST_RIVALS = 4


def reasons(trace: Trace, row: Row, found: list[Because]) -> Iterator[str]:
    """Yield a sentence for each rival, and one on what content and distance alone would choose."""
    order = row.strongest
    for one in found[:MOST_RIVALS]:
        yield _reason(trace, row, one, ", the runner-up" if one.rival_index in order[1:2] else "")
    if (more := len(found) - MOST_RIVALS) > 0:
        yield f"{count(more, 'more place', 'more places')} of {quoted(found[-1].rival)}: the table has them."
    if trace.settings.versus is not None and order[0] in trace.named_rivals:
        yield f"{named(trace, row, order[0])} is the winner."
    if found and row.position is not None:
        yield _alone(trace, row, row.position)


def key_named(trace: Trace, row: Row, j: int) -> str:
    """Return a key in quotation marks, or `itself`, as the object of a sentence."""
    return "itself" if trace.is_self and j == row.query else quoted_at(trace.key_tokens, j)


def named(trace: Trace, row: Row, j: int) -> str:
    """Return a key in quotation marks, as the subject of a sentence: `"sat" itself`."""
    return quoted_at(trace.key_tokens, j) + (" itself" if trace.is_self and j == row.query else "")


def _reason(trace: Trace, row: Row, one: Because, whose: str) -> str:
    """Return why the winner is ahead of one rival, and which term decided."""
    winner, rival = (named(trace, row, j) for j in (one.winner_index, one.rival_index))
    question = f"Why {winner} and not {rival}{whose}?"
    if one.decided == "mask":
        return f"{question} The mask: {quoted_at(trace.query_tokens, row.query)} may not look at {rival}."
    if one.lead <= 0 or row.weights[one.winner_index] == row.weights[one.rival_index] > 0:
        return f"{question} Both get the same weight."
    if one.distance is None:
        content = f"{score_named(trace.score).symbol}{root_divisor(trace)}{temperature_divisor(trace)}"
        content = "capped score" if row.capped is not None else content
        alone = "There is no distance term: content alone decides"
        if trace.placed is not None or trace.of_model:
            alone = "Content decides, and the words' places are part of it"
        return f"{question} Its {content} is {four(one.lead)} higher. {alone}."
    decides = "both decide alike" if one.decided == "both" else f"{one.decided} decides"
    content = "content is the same" if one.content == 0 else f"content puts it {_ahead(one.content)}"
    distance = _ahead(one.distance) if one.content else f"distance puts it {_ahead(one.distance)}"
    if one.content:
        distance = f"distance {distance}"
    return (
        f"{question} Its sum is {four(one.lead)} higher: {content}, {distance}. Against {rival}, {decides}."
    )


def _ahead(by: float) -> str:
    return f"{four(abs(by))} {'ahead' if by >= 0 else 'behind'}"


def _alone(trace: Trace, row: Row, position: list[float]) -> str:
    """Return what the query would look at most by content alone, and by distance alone."""
    query, winner = quoted_at(trace.query_tokens, row.query), row.strongest[0]
    by_content, by_distance = (_first(row, values) for values in (row.content, position))
    if by_content == by_distance == winner:
        return f"Content alone would choose {named(trace, row, winner)}, and so would distance alone."
    parts = [
        f"by {term} alone {query} would choose {key_named(trace, row, best)}"
        if best is not None
        else f"{term} alone cannot choose, for several keys share its largest value"
        for term, best in (("content", by_content), ("distance", by_distance))
    ]
    if by_content is not None and by_distance is not None:
        parts[1] = f"by distance alone {key_named(trace, row, by_distance)}"
    text = ("; " if None in (by_content, by_distance) else ", ").join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _first(row: Row, values: list[float]) -> int | None:
    """Return the allowed key with the largest value; None where several share it."""
    order = sorted(row.strongest, key=lambda j: -values[j])
    is_shared = len(order) > 1 and not row.lead(values, order[0], order[1])
    return None if is_shared else order[0]
