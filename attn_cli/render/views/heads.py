"""The screen of attn heads: small maps of all layers and heads, and what each of them does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.errors import count, fixed, shell_quote, visible
from attn_cli.pipeline.every_head import EveryHead, LayerRoles, MapSize, learned_heads, named_heads
from attn_cli.render import Block, Columns, Heading, Links, Maps, Matrix, Say, joined, ramps, share
from attn_cli.render.views import finding
from attn_cli.settings import View
from attn_cli.text.wordpieces import as_text
from attn_cli.trace.head_roles import BAG, LEAD, MIN_GAIN, MIN_ROWS, MIN_UNIFORM_OVERLAP, MIXED, PATTERNS

OVERLAPS = f"at least {MIN_UNIFORM_OVERLAP:.0%} of the weight overlaps with a uniform distribution"
# The name on the screen, the letter above a small map, what the pattern is.
WORDS = {
    "previous": ("previous token", "P", "the token before"),
    "next": ("next token", "N", "the token after"),
    "itself": ("itself", "I", "the token itself"),
    "first": ("first token", "F", "the text's first token, a sink"),
    "separators": ("separators", "S", "punctuation, and [SEP] or </s>"),
    "same": ("same token", "=", "another occurrence of the same token"),
    "induction": ("induction", ">", "the token after an earlier occurrence of the same one"),
    BAG: ("bag of words", "B", f"nearly uniform: {OVERLAPS}"),
    MIXED: ("mixed", "", "none of these clearly"),
}
WIDTH, EDGE, APART = 80, 3, 1  # of a screen of unknown width; of layers' numbers; between maps
NARROW, HIGH = 5, 16  # the fewest columns of a small map; the most rows of one among several layers'
LINES = 2  # of maps, that each of several layers may take
MAX_MAP_SIDE = 64  # rows and columns of a small map in a figure or on a page, or of one layer
LONGEST_NAME = 16
MOST_ROLLED = 64  # tokens of a rollout that a screen shows
KINDS = {"self": "Self-attention", "masked": "Masked self-attention", "cross": "Cross-attention"}


def map_size(view: View, one_layer: bool = False) -> MapSize:
    """Return the function that says how many blocks down and across a small map has: a cell a weight where they fit."""

    def of_heads(heads: int, n_q: int, n_k: int) -> tuple[int, int]:
        down, across = min(n_q, MAX_MAP_SIDE), min(n_k, MAX_MAP_SIDE)
        if view.figure is not None or view.format == "html":
            return down, across
        across = min(across, _room(view, 1 if one_layer else -(-heads // LINES)))
        return min(down, MAX_MAP_SIDE if one_layer else HIGH, n_q if across == n_k else across), across

    return of_heads


def _room(view: View, maps: int) -> int:
    return max(NARROW, ((view.width or WIDTH) - EDGE + APART) // maps - APART)


def screen(found: EveryHead, view: View) -> Iterator[Block]:
    """Yield the screen: the maps, or a table where a format has no small maps, what heads do, the rollout."""
    source, layers = found.source, found.layers
    n_q, n_k = len(source.query_tokens), len(source.key_tokens)
    size = f"{count(n_q, 'query', 'queries')} x {count(n_k, 'key', 'keys')}"
    size = count(n_q, "token", "tokens") if source.text.is_one else size
    heads = count(len(layers[0].heads), "head", "heads")
    which = f"{len(layers)} layers x {heads}" if len(layers) > 1 else f"layer {layers[0].number}, {heads}"
    yield from (Heading(f"{KINDS[source.kind]}: {which}, {size}", 1), Say(_finding(found)))
    has_maps = view.format not in ("markdown", "latex")
    if has_maps:
        yield from _maps(found, view)
    own = next((head for layer in layers for head in layer.heads if not head.isdigit()), None)
    if own is not None:
        yield Say(
            f"Names such as {visible(own)} come with {source.name}; what a head does on this text stands after its "
            f"name ({MIXED} or no word: nothing clearly).",
            quiet=True,
        )
    if len(layers) == 1 or not has_maps:
        yield Heading("The share of attention that goes to each pattern", 2)
        yield from _shares(layers)
    yield from _by_role(found)
    if found.rollout is not None:
        tokens = as_text(source.query_tokens)
        yield Heading(f"Attention rollout over the layers up to {layers[-1].number}", 2)
        half = "Each layer: half the mean of its heads, half the token itself"
        yield Say(f"{half}; multiplied from the words up.")
        matrix = Matrix(tokens, tokens, found.rollout, "query\\key", is_weights=True, shaded=True)
        rolled = matrix._replace(row_numbers=range(n_q))
        yield rolled if n_q <= MOST_ROLLED else Say(f"It is {n_q:,} x {n_q:,}: -f json has it.")
    yield from _learned(found)
    yield from map(Say, (f"Weights of {source.name}.", *(f"Note: {note}" for note in found.notes)))
    if view.format in finding.SCREENS:
        yield _next(found)


def _label(found: EveryHead, layer: int, head: str) -> str:
    return f"{layer}.{head}" if len(found.layers) > 1 else head


def _finding(found: EveryHead) -> str:
    total, named = sum(len(layer.heads) for layer in found.layers), named_heads(found)
    parts: list[str] = []
    for name, many in Counter(role.name for *_, role in named).most_common():
        layer, head, role = next(one for one in named if one[2].name == name)
        where = "evenly at all they may see" if name == BAG else f"mostly at {WORDS[name][2]}"
        look = "" if parts else "looks " if many == 1 else "look "
        best = f"{visible(_label(found, layer, head))}: {share(role.share or 0.0)}"
        parts.append(f"{many:,} {look}{where} ({best})")
    if not parts:
        return f"None of {count(total, 'head', 'heads')} does one simple thing on this text."
    mixed = f"; {total - len(named):,} mix several" if total > len(named) else ""
    why = "A head is one question to the text: with several, a word looks for several things at once."
    return f"Of {count(total, 'head', 'heads')}, {joined(parts)}{mixed}. {why}"


def _learned(found: EveryHead) -> Iterator[Block]:
    """Yield what heads were taught, or are named for, those of one aim together, with how often each is right."""
    by_aim: dict[str, list[str]] = {}
    known = learned_heads(found)
    for layer, head, facts in known:
        beside = f" ({facts.baseline:.0%})" if facts.baseline is not None and facts.baseline < 1 else ""
        where = f", on {facts.scored_on.partition('.')[0]}" if facts.scored_on else ""
        right = f"{visible(_label(found, layer, head))} {facts.accuracy:.0%}{beside}"
        by_aim.setdefault(visible(f"{facts.about}{where}"), []).append(right)
    if known:
        how, alone = "is named for", ""
        if known[0][2].taught:
            how, alone = "was taught", "A word that has no such partner looks at itself. "
        yield Heading(f"What each head {how}, and how often it is right on held-out text")
        yield Say(f"{alone}In brackets: how often the best fixed distance is right.", quiet=True)
    yield from (Say(f"{', '.join(heads)}: {about}.") for about, heads in by_aim.items())


def _next(found: EveryHead) -> Say:
    source, first, named = found.source, found.layers[0], named_heads(found)
    layer, head = named[0][:2] if named else (first.number, first.heads[0])
    verb, is_several = "show" if source.given.startswith("--") else source.kind, len(found.layers) > 1
    of = source.given.removeprefix("--weights ")
    of = of.replace("TEXT", "TEXT CONTEXT") if verb == "cross" else of
    at = f" --layer {layer}" * (is_several or first.number > 0)
    other = ("attn heads TEXT -p language", "a language model's heads")
    if is_several:
        other = (f"attn heads {source.given} --layer {layer}", "every share of a layer's heads")
    whose = "the clearest head's weights" if named else "a head's weights"
    return finding.next_commands((f"attn {verb} {of}{at} --head {shell_quote(head)}", whose), other)


def _maps(found: EveryHead, view: View) -> Iterator[Block]:
    """Yield a small map of each head, named by what it does, in words or where there is no room by a letter."""
    layers, is_page, source = found.layers, view.format == "html", found.source
    values, is_one = [one for layer in layers for one in layer.maps], len(layers) == 1
    scale = ramps.shade_range(Matrix((), (), np.array(values), is_weights=True))
    rows, columns = values[0].shape
    n_q, n_k = len(source.query_tokens), len(source.key_tokens)
    room = max(columns, LONGEST_NAME if is_one else _room(view, len(layers[0].heads)))
    names, used = [], set[str]()
    is_whole = (rows, columns) == (n_q, n_k)
    has_rows = is_one and not is_page and is_whole  # their words stand at the left
    for layer in layers:
        for head, role in zip(layer.heads, layer.roles, strict=True):
            words, letter, _ = WORDS[role.name]
            name = f"{head}{':' * has_rows} {words}" if head != role.name else head
            if len(name) > room and not is_page:
                used.add(role.name)
                name = f"{head} {letter}".rstrip()
            names.append(name)
    bands = [] if has_rows else ["" if is_one else f"{layer.number:>{EDGE - 1}}" for layer in layers]
    tokens = as_text(source.query_tokens), as_text(source.key_tokens)
    maps = Maps(names, *tokens, values, scale, range(rows), bands=bands, is_weights=is_whole)
    if not is_whole:
        maps = maps._replace(rows=[""] * rows, columns=[""] * columns, column_numbers=range(columns))
    up = "Rows" if is_one else "Layers from the words up; rows"
    said = [f"{up} are queries, columns are keys, in the order of the text."]
    letters = [f"{letter} {words}" for name, (words, letter, _) in WORDS.items() if letter and name in used]
    said += [f"{', '.join(letters)}."] * bool(letters)
    if not is_whole:
        down, across = _per_cell(n_q, rows, "query", "queries"), _per_cell(n_k, columns, "key", "keys")
        said.append(f"A cell is the mean weight of {down} x {across}.")
    yield maps
    yield from (Say(text, quiet=True) for text in said)


def _per_cell(n: int, blocks: int, one: str, many: str) -> str:
    least, most = n // blocks, -(-n // blocks)
    return count(most, one, many) if least == most else f"{least:,} or {count(most, one, many)}"


def _shares(layers: Sequence[LayerRoles]) -> Iterator[Block]:
    for layer in layers:
        if len(layers) > 1:
            yield Heading(f"Layer {layer.number}", 3)
        patterns = [name for name in PATTERNS if layer.patterns[name].even is not None]
        rows = []
        for head, role in zip(layer.heads, layer.roles, strict=True):
            shares = [fixed(role.shares[name] or 0.0, 2) for name in (*patterns, BAG)]
            rows.append([head, *shares, "-" if role.entropy is None else fixed(role.entropy, 2)])
        even = [fixed(layer.patterns[name].even or 0.0, 2) for name in patterns]
        yield Columns(["head", *patterns, "even", "entropy"], [*rows, ["if even", *even, "1.00", ""]])
    named = [name for name in layers[0].patterns if name in ("first", "same", "induction")]
    told = "; ".join(f"{name}: {WORDS[name][2]}" for name in named)
    yield Say(f"{told}; even: the overlap with a uniform distribution. Entropy is in bits.", quiet=True)


def _by_role(found: EveryHead) -> Iterator[Block]:
    by_role: dict[str, list[tuple[str, str]]] = {name: [] for name in WORDS}
    for layer, head, role in named_heads(found):
        by_role[role.name].append((_label(found, layer, head), share(role.share or 0.0)))
    if any(by_role.values()):
        yield Heading(f"All heads by what they do{', as layer.head' * (len(found.layers) > 1)}", 2)
        yield Links([(name, heads) for name, heads in by_role.items() if heads])
    if by_role[BAG]:
        yield Say(f"{WORDS[BAG][0]}: {WORDS[BAG][2]}.", quiet=True)
    yield Say(
        "A share is the mean weight that goes there, over the rows where that is possible. A head is named if its "
        f"largest share covers at least {MIN_GAIN:.0%} of the gap between a uniform head's share and 1, leads the next "
        f"by {LEAD:.2f}, and can occur in at least {MIN_ROWS} rows.",
        quiet=True,
    )
