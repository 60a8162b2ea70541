"""A lookup as a screen in three acts: the key as written, the nearest key, a share of every value."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from attn_cli.errors import count, count_more, fixed
from attn_cli.render import Bars, Block, Formula, Heading, Links, Matrix, Say, listed, plain, quoted, share
from attn_cli.render.views import origins, wording
from attn_cli.render.views.one_row import one_row, row_table
from attn_cli.settings import View
from attn_cli.teach.examples import Acts
from attn_cli.teach.soft_dictionary import DictionaryExample, Lookup

MOST_KEYS, MOST_TERMS, LONGEST_VALUE = 12, 8, 200
MILLION = 1e6
MAX_PLAIN_NUMBER = 1e15  # beyond it, numbers are written with eight digits
EXACT = "1. A dictionary: the key as written"
NEAR = "2. A forgiving dictionary: the nearest key"
SOFT = "3. Attention: a share of every value"


def lookup(found: Lookup, view: View) -> Iterator[Block]:
    """Yield the three acts for one query, and the weights from soft to hard."""
    keys = count(len(found.values), "key", "keys")
    yield Heading(f"{quoted(found.query)} in a dictionary of {keys}", 1)
    yield from (Heading(EXACT), Say(_exact(found)), Heading(NEAR), *_near(found))
    yield from (Heading(SOFT), *_soft(found, view))
    yield Say("A dictionary takes all of one value; attention takes a share of each.")
    yield from _ending(found, view)


def story(example: DictionaryExample, acts: Acts, view: View) -> Iterator[Block]:
    """Yield the worked example: each act with its own query, and the claim it demonstrates."""
    yield Heading("Attention as a dictionary", 1)
    pairs = [f"{quoted(key)}: {value(one)}" for key, one in acts.pairs.items()]
    yield Say(f"d = {{{', '.join(pairs)}}}")
    yield from (Heading(EXACT), Say(_exact(example.exact)), Heading(NEAR), Say(_exact(example.near)))
    yield from _near(example.near)
    yield from (Heading(SOFT), Say("These keys come without values: each stands for itself."))
    yield from (*_soft(example.soft, view), Say(example.claim), *_ending(example.soft, view))


def _ending(found: Lookup, view: View) -> Iterator[Block]:
    if len(found.values) > 1 and found.nearest is not None and any(found.weights):
        yield from _ladder(found)
    if view.steps:
        yield from one_row(found.trace, 0, every_key=True)
    yield from origins.closing(found.trace)


def value(text: str) -> str:
    """Return a value in quotation marks, cut off if it is very long."""
    return f'"{text}"' if len(text) <= LONGEST_VALUE else f'"{text[:LONGEST_VALUE]}..."'


def _exact(found: Lookup) -> str:
    query = quoted(found.query)
    if found.exact is not None:
        return f"d[{query}] is {value(found.exact)}: there is a key with exactly this spelling."
    alike = [key for key in found.trace.key_tokens if key.casefold() == found.query.casefold()]
    more = f" {quoted(alike[0])} differs in its capitals." if alike else ""
    return f"d[{query}] finds nothing: no key has exactly this spelling.{more}"


def _near(found: Lookup) -> Iterator[Block]:
    query, trace = quoted(found.query), found.trace
    keys, most = trace.key_tokens, trace.settings.top or MOST_KEYS
    if found.nearest is None:
        side = "any key" if np.any(trace.x_query) else query
        yield Say(f"There is no vector for {side}, so no key is near.")
        return
    cosines = [(keys[j], "no vector" if c is None else fixed(c, 3)) for j, c in found.nearness]
    yield Say(f"The cosines of {query} with the keys, nearest first:")
    yield Links([(found.query, cosines[:most])])
    if len(cosines) > most:
        yield Say(f"{count(len(cosines) - most, 'more key is', 'more keys are')} farther away.")
    nearest = f"{quoted(keys[found.nearest])} -> {value(found.values[found.nearest])}"
    yield Say(f"{query} -> {nearest}: the nearest key answers.")


def _soft(found: Lookup, view: View) -> Iterator[Block]:
    trace = found.trace
    row, keys, hidden = trace.row(0), _keys(found), _masked(found)
    yield Formula(wording.formula(trace))
    if len(trace.head_names) > 1 and trace.settings.head == "all":
        yield Say(f"This is {wording.head_named(trace.shown.name)}; --head shows another.")
    if row is not None and row.total == 0:
        yield Say(f"{quoted(found.query)} may look at no key, so it gets no value.")
        return
    if view.has_bars or row is None:
        items = [(trace.key_tokens[j], None if j in hidden else found.weights[j]) for j in keys]
        yield Bars("", items, max(found.weights))
    else:
        yield row_table(trace, row, keys)
    if found.answer is not None:
        yield from (Say("The answer is every value times its weight:"), Formula(_sum(found, found.answer)))
        return
    for one in found.shares:
        if len(one.keys) > 1:
            alike = listed(list(map(quoted, one.keys)))
            yield Say(f"Equal values add up: {value(one.value)} is the value of {alike}.")
    hidden_keys = {trace.key_tokens[j] for j in hidden}
    shares = [one for one in found.shares if not hidden_keys.issuperset(one.keys)]
    parts = ", ".join(f"{share(one.weight)} of {value(one.value)}" for one in shares[:MOST_TERMS])
    more = len(shares) - MOST_TERMS
    parts += f" and {count(more, 'value', 'values')} more" if more > 0 else ""
    yield Say(f"The answer is {parts}; the strongest is {value(found.shares[0].value)}.")


def _keys(found: Lookup) -> list[int]:
    order = sorted(range(len(found.values)), key=lambda j: -found.weights[j])
    return sorted(order[: found.trace.settings.top or MOST_KEYS])


def _masked(found: Lookup) -> set[int]:
    mask = found.trace.mask
    return set() if mask is None else set(np.flatnonzero(~mask[0]).tolist())


def _sum(found: Lookup, answer: float) -> str:
    """Return the weighted value as a sum: all terms up to eight, else the strongest and the rest."""
    weights, numbers, (digits, decimals) = found.weights, found.numbers or (), _digits(found)
    order = sorted({*range(len(weights))} - _masked(found), key=lambda j: -weights[j])
    terms = []
    for j in sorted(order[:MOST_TERMS]):
        weight, shown = weights[j], f"{numbers[j]:.15g}"
        written = f"{weight:.{digits}f}" if weight == 0 or weight >= 10.0**-digits else f"{weight:.1e}"
        terms.append(f"{written}×{shown if numbers[j] >= 0 else f'({shown})'}")
    if rest := sorted(order[MOST_TERMS:]):
        total = _rounded(sum(weights[j] * numbers[j] for j in rest), decimals)
        terms.append(f"({len(rest):,} more: {total})")
    return f"{' + '.join(terms)} = {_rounded(answer, decimals)}"


def _digits(found: Lookup) -> tuple[int, int]:
    """Return how many digits to write of the weights, and how many of the answer follow from those."""
    most = min(MAX_PLAIN_NUMBER, sum(map(abs, found.numbers or ())))
    size = math.ceil(math.log10(most)) if most else 0
    digits = min(8, max(4, size + 2))
    return digits, min(8, max(0, digits - size))


def _rounded(number: float, decimals: int) -> str:
    if abs(number) >= MAX_PLAIN_NUMBER:
        return f"{number:.8g}"
    return plain(number, decimals) if abs(number) < MILLION else f"{number:.{decimals}f}"


def _ladder(found: Lookup) -> Iterator[Block]:
    trace, keys, ladder = found.trace, _keys(found), found.ladder
    yield Heading("From soft to hard: the temperature")
    cells = np.array([[rung.weights[j] for rung in ladder] for j in keys])
    cells[[j in _masked(found) for j in keys]] = np.nan
    names = [f"{plain(rung.temperature)}{'*' * (rung.temperature == trace.temperature)}" for rung in ladder]
    more = count_more(left, "key") if (left := len(found.values) - len(keys)) else ""
    matrix = Matrix([trace.key_tokens[j] for j in keys], names, cells, "key\\T", is_weights=True, shaded=True)
    yield matrix._replace(more=more)
    if found.answer is not None:
        answers = [(rung.answer, plain(rung.temperature)) for rung in ladder if rung.answer is not None]
        written = [f"{_rounded(answer, _digits(found)[1])} at {T}" for answer, T in answers]
        yield Say(f"The answers: {', '.join(written)}.")
    winners = [quoted(trace.key_tokens[j]) for j in np.flatnonzero(ladder[-1].weights)]
    limit = f"at 0, the limit, all {'is shared by' if len(winners) > 1 else 'goes to'} {listed(winners)}"
    yield Say(f"* marks the temperature in use. The lower it is, the harder the choice: {limit}.")
