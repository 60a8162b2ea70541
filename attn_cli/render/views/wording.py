"""What every screen says of its numbers: title, settings, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.io.escape import visible
from attn_cli.io.plural import count
from attn_cli.models.model_file import BUNDLED
from attn_cli.render.blocks import Block, Say
from attn_cli.render.numbers import plain
from attn_cli.render.screen.text import listed
from attn_cli.trace.head import Head
from attn_cli.trace.trace import Learned, Trace

KINDS = {"self": "self-attention", "masked": "self-attention", "cross": "cross-attention"}
LONGEST = 24
MOST_CELLS = 20_000  # of a matrix that is drawn
FEW_KEYS = 36  # this many always fit in a row or a list
# A head lives on the distance if it is right for less than this share of its score where that distance is wrong, and
# on the words if it keeps this share of its score without the distance.
ON_DISTANCE, ON_WORDS = 0.5, 0.8
MOST_NAMED, FIRST_NAMED, LAST_NAMED = 12, 6, 4  # keys named in a sentence


def short(token: str) -> str:
    """Return a token for use in a sentence, its middle left out if it is very long."""
    return token if len(token) <= LONGEST else f"{token[:16]}...{token[-4:]}"


def quoted(token: str) -> str:
    """Return a token in quotation marks, to stand out in a sentence."""
    return f'"{short(token)}"'


def quoted_at(tokens: Sequence[str], i: int) -> str:
    """Return token i in quotation marks, followed by its place if the token occurs more than once."""
    return quoted(tokens[i]) + (f" ({i})" if tokens.count(tokens[i]) > 1 else "")


def placed(tokens: Sequence[str], i: int) -> str:
    """Return token i for a label, preceded by its place if the token occurs more than once."""
    return f"{i} {short(tokens[i])}" if tokens.count(tokens[i]) > 1 else short(tokens[i])


def may_look_at(trace: Trace, i: int) -> str:
    """Return which keys the mask allows to query i, in a sentence."""
    query, n_k = quoted_at(trace.query_tokens, i), len(trace.key_tokens)
    allowed = list(range(n_k)) if trace.mask is None else np.flatnonzero(trace.mask[trace.held(i)]).tolist()
    if not allowed:
        return f"{query} may look at nothing."
    is_long = len(allowed) > MOST_NAMED
    names = [
        quoted_at(trace.key_tokens, j)
        for j in ([*allowed[:FIRST_NAMED], *allowed[-LAST_NAMED:]] if is_long else allowed)
    ]
    if is_long:
        names.insert(FIRST_NAMED, "...")
    return f"{query} may look at {', '.join(names)} ({len(allowed):,} of {n_k:,})."


def is_large(trace: Trace) -> bool:
    """Return whether the weights are shown as a map, and a row by a few of its strongest keys."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    return trace.condensed or (n_q * n_k > MOST_CELLS and n_k > FEW_KEYS)


def size(trace: Trace) -> str:
    """Return how many queries and keys there are."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    return f"{count(n_q, 'query (row)', 'queries (rows)')} x {count(n_k, 'key (column)', 'keys (columns)')}"


def title(trace: Trace) -> str:
    """Return the screen's title: the kind of attention, and its size."""
    return f"{kind_of(trace)}: {size(trace)}"


def kind_of(trace: Trace) -> str:
    """Return the kind of attention: `Masked self-attention`."""
    kind = KINDS.get(trace.kind, "attention")
    if trace.kind == "show" and trace.is_self and trace.query_ids is not None:
        kind = KINDS["self"]
    return f"Masked {kind}" if trace.mask_name != "none" else kind.capitalize()


def formula(trace: Trace) -> str:
    """Return the formula of the weights, with this trace's own numbers in it."""
    found = _of_each_head(trace)
    if trace.is_scored and trace.shown.name == "mean" and len(trace.head_names) > 1:
        return found.replace("weights = ", "weights = the mean of the heads' ", 1)
    return found


def _of_each_head(trace: Trace) -> str:
    """Return the formula of a head's weights."""
    if not trace.is_scored:
        return trace.derived
    head, scores = trace.heads[0], score_named(trace.score).symbol + root_divisor(trace)
    distance, heat = "" if head.position_scores is None else " + distance", temperature_divisor(trace)
    if trace.softcap is not None:
        cap = plain(trace.softcap)
        if head.turned is None:  # what was given is added to what the cap leaves
            return f"weights = softmax({cap} tanh({scores} / {cap}){heat}{distance})"
        return f"weights = softmax({cap} tanh(({scores}{distance}) / {cap}){heat})"
    if trace.tempers_distance and heat:
        return f"weights = softmax(({scores}{distance}){heat})"
    return f"weights = softmax({scores}{heat}{distance})"


def no_arithmetic(trace: Trace) -> tuple[str, str]:
    """Return why weights without scores have no arithmetic, and where there is some."""
    if trace.kind == "show":
        why = "These weights were given without queries, keys and scores, so there is no arithmetic to show."
        return why, "attn self ... -f json --steps holds them."
    why = "These weights were made of others and have no scores of their own, so there is no arithmetic to show."
    made = {
        "--join-pieces": trace.settings.join_pieces,
        "--hide-special": trace.settings.hide_special,
        f"--head {trace.settings.head}": trace.settings.head in ("mean", "rollout"),
    }
    options = [option for option, is_set in made.items() if is_set]
    return why, f"Leave out {' and '.join(filter(None, [', '.join(options[:-1]), options[-1]]))}."


def root_divisor(trace: Trace) -> str:
    """Return ` / √32` where the scores are scaled, ` × 0.3333` by what a model has in its place, else nothing."""
    if trace.own_scale is not None:
        return f" × {plain(trace.own_scale)}"
    return f" / √{d_k(trace)}" if score_named(trace.score).is_scaled else ""


def temperature_divisor(trace: Trace) -> str:
    """Return ` / 0.5`, the temperature as it was typed, where it is not 1."""
    return f" / {trace.temperature:.12g}" if trace.temperature != 1 else ""


def position_term(trace: Trace, numerator: str = "q·r + b") -> str:
    """Return what a learned head adds for a distance: the numerator, divided as the scores are."""
    root = f" / √{d_k(trace)}" if score_named(trace.score).is_position_scaled else ""
    return f"({numerator}){root}{temperature_divisor(trace)}"


def shared_with(trace: Trace, head: Head) -> str:
    """Return with which heads a head shares its keys and values, in a sentence; empty where with none."""
    kv_heads, n = trace.projection.kv_heads, len(trace.head_names)
    if kv_heads is None or not (head.name.isascii() and head.name.isdigit()):
        return ""
    each = n // kv_heads
    own = int(head.name) // each
    others = [str(h) for h in range(own * each, (own + 1) * each) if str(h) != head.name]
    with_whom = f"{'head' if len(others) == 1 else 'heads'} {listed(others)}"
    return (
        f"Head {head.name} shares W_k and W_v, so keys and values too, with {with_whom} "
        f"(grouped queries: key head {own} of 0 to {kv_heads - 1})."
    )


def turned_term(trace: Trace, content: str = "content") -> str:
    """Return what a head that turns its vectors adds for a distance: the turned score less the content."""
    turned = turned_symbol(score_named(trace.score).symbol)
    return f"{turned}{root_divisor(trace)}{temperature_divisor(trace)} - {content}"


def turned_symbol(symbol: str) -> str:
    """Return a score's symbol for the queries and keys that are turned by their places: q'·k'."""
    return symbol.replace("q", "q'").replace("k", "k'")


def cap_term(trace: Trace, score: str) -> str:
    """Return what the soft cap makes of a score: `50 tanh(scaled / 50)`, the cap divided by the temperature."""
    cap = plain((trace.softcap or 0.0) / trace.temperature)
    return f"{cap} tanh({score} / {cap})"


def d_k(trace: Trace) -> int:
    """Return how many numbers a query has."""
    q = trace.heads[0].q
    return 0 if q is None else int(q.shape[1])


def setting_parts(trace: Trace) -> list[str]:
    """Return the settings behind the numbers, each in a few words."""
    parts = _score_parts(trace) if trace.is_scored else [_origin(trace)]
    parts.append("no mask" if trace.mask_name == "none" else f"mask {trace.mask_name}")
    if trace.has_layers:
        parts.append(f"layers 0 to {trace.projection.layer}")
    elif trace.projection.source == "given" and trace.projection.layer is not None:
        parts.append(f"layer {trace.projection.layer}" + _of_layers(trace.stack_layers))
    elif trace.learned is not None and trace.learned.layers > 1:
        parts.append(f"layer {trace.projection.layer}" + _of_layers(trace.learned.layers))
    if len(trace.head_names) > 1:
        n = len(trace.head_names)
        shown = {
            "all": f"all {n} heads",
            "mean": f"mean of {n} heads",
            "rollout": f"rollout, from the mean of {n} heads",
        }
        if trace.has_layers:
            shown = {name: f"{told} of each" for name, told in shown.items()}
        parts.append(shown.get(trace.settings.head or "", f"{head_named(trace.shown.name)} (one of {n})"))
    elif trace.kind == "show" and trace.shown.name not in ("0", "mean"):
        parts.append(head_named(trace.shown.name))
    return parts


def _of_layers(layers: int | None) -> str:
    """Return ` of 0 to 11`, where a layer is one of several."""
    return f" of 0 to {layers - 1}" if layers and layers > 1 else ""


def shown_part(trace: Trace) -> str:
    """Return which layer and head of a pretrained model a screen shows, in a sentence."""
    whose = "Layers" if trace.has_layers else "Layer"
    layer = f"{whose} {'0 to ' if trace.has_layers else ''}{trace.projection.layer}"
    layer += "" if trace.has_layers else _of_layers(trace.stack_layers)
    n = len(trace.head_names)
    head = {"all": f"all {n} heads", "mean": f"the mean of {n} heads"}.get(trace.settings.head or "")
    head = head or f"{head_named(trace.shown.name)} of 0 to {n - 1}"
    return f"{layer}, {head}, of {trace.embedding.name}; --layer and --head show others."


def _origin(trace: Trace) -> str:
    """Return whose the weights are, where no scores made them."""
    if trace.kind == "show":
        return f"Weights given by {trace.embedding.name}"
    return f"Made of the weights of {trace.projection.name}"


def head_named(name: str) -> str:
    """Return `head "subject"`, or `head 3`."""
    return f"head {name}" if name.isdigit() else f'head "{name}"'


def head_of_layer(head: Head) -> str:
    """Return `head 3`, or `head 3 of layer 1` where there are several layers."""
    return head_named(head.name) + ("" if head.layer is None else f" of layer {head.layer}")


def _score_parts(trace: Trace) -> list[str]:
    """Return what the scores were made from: vectors, weights, scale."""
    parts = [_vectors(trace), projection(trace)]
    if trace.score == GIVEN:
        parts = [f"Scores given by {trace.embedding.name}"]
    score = score_named(trace.score)
    is_root = score.is_scaled and trace.own_scale is None
    parts.append(
        f"scale 1/sqrt({d_k(trace)}) = {plain(trace.scale)}" if is_root else f"scale {plain(trace.scale)}"
    )
    if trace.softcap is not None:
        parts.append(f"scores capped at {plain(trace.softcap)}")
    if trace.temperature != 1:
        parts.append(f"temperature {trace.temperature:.12g}")
    if score.note:
        parts.append(score.note)
    if trace.positions != "none":
        parts.append(f"{trace.positions} positions added")
    if trace.settings.round is not None:
        parts.append(f"inputs rounded to {count(trace.settings.round, 'digit', 'digits')}, then computed")
    return parts


def _vectors(trace: Trace) -> str:
    about = trace.embedding
    if about.source == "given":
        return f"Model {about.name}" if trace.of_model else f"Matrices given by {about.name}"
    if about.source == "random":
        return f"Vectors: random, {about.dim} numbers each, seed {about.seed}"
    length = "" if about.length is None else f", each of length {plain(about.length)}"
    return f"Vectors: {about.name}, {about.dim} numbers each{length}"


def projection(trace: Trace) -> str:
    """Return where W_q, W_k and W_v come from, and their layout."""
    about = trace.projection
    if trace.heads[0].W_q is None:
        if about.source == "given":
            return "Q, K and V as it makes them" if trace.of_model else "Q, K and V as given"
        if about.source == "identity":
            split = ", columns split" if len(trace.head_names) > 1 else ""
            return f"Q and K are the vectors themselves{split}; V are the values"
        seed = "" if about.seed is None else f", seed {about.seed}"
        return f"W_q and W_k: {about.name}{seed}, layout {about.layout}; V are the values"
    rule = "x W" if about.layout == "in-out" else "W x"
    if about.source == "identity":
        if len(trace.head_names) > 1:
            return "W: identity, columns split"
        return f"W: identity, so Q = {'X and K = V = the context' if trace.apart else 'K = V = X'}"
    if about.source == "random":
        return f"W: random, seed {about.seed}, layout in-out (x W)"
    if about.source == "learned":
        return f"W: {about.name}, learned, layout in-out (x W)"
    return f"W: {about.name}, layout {about.layout} ({rule})"


# Terms of grammar in what a head was taught, explained where they stand.
GLOSSES = {
    "its governor": "the word it depends on",
    "determiner": "the, a, this",
    "possessor": "whose it is",
    "joined word": "as after and",
}


def _glossed(about: str) -> str:
    """Return what a head was taught, its terms explained."""
    for term, meaning in GLOSSES.items():
        about = about.replace(term, f"{term} ({meaning})", 1)
    return about


def learned(trace: Trace) -> list[str]:
    """Return sentences about a learned head: what it was taught, on what, and its score."""
    facts = trace.learned
    if facts is None:
        return []
    whose = "by this project" if facts.model in BUNDLED else "with attn learn train"
    if not facts.taught:
        whose = whose.replace("train", "language")
        origin = f"{facts.model} was trained {whose} to guess the next word of running text: a small language model."
        told = [] if trace.shown.name == "mean" else [f"{_taught(trace, facts)}."]
        return [*told, origin, *(_accuracy(trace, facts) if told else ())]
    origin = f"{facts.model} was trained {whose} on {_sources(facts)}, and is not a large language model."
    if trace.shown.name == "mean":
        return [origin]
    return [f"{_taught(trace, facts)}.", origin, *_accuracy(trace, facts)]


def _sources(facts: Learned) -> str:
    """Return the treebanks that a model was trained on, and the passages with marked pronouns."""
    passages = [name for name in facts.trained_on if ".jsonl" in name.lower()]
    treebanks = [name for name in facts.trained_on if name not in passages]
    kinds = []
    for one, several, names in (
        ("a treebank", "treebanks", treebanks),
        ("passages with marked pronouns", "passages with marked pronouns", passages),
    ):
        if names or not (treebanks or passages):
            listing = listed([visible(name.partition(".")[0]) for name in names])
            kinds.append(f"{one if len(names) == 1 else several} ({listing})")
    return " and ".join(kinds)


def learned_briefly(trace: Trace) -> list[str]:
    """Return a sentence on what a learned head was taught, and how often it is right."""
    facts = trace.learned
    if facts is None or trace.shown.name == "mean":
        return []
    if facts.about is None:
        return [f"{_taught(trace, facts)}."]
    if _untested(trace) or facts.accuracy is None or facts.baseline is None:
        return [f"{_taught(trace, facts)}: how often it is right here was not measured."]
    right = f"in unseen text, right for {facts.accuracy:.1%} (best fixed distance: {facts.baseline:.1%})"
    return [f"{_taught(trace, facts)}: {right}."]


def _taught(trace: Trace, facts: Learned) -> str:
    """Return what a head was taught, without the full stop."""
    n = len(trace.head_names)
    head = f"Head {short(trace.shown.name)}, one of {n}," if n > 1 else f"Head {short(trace.shown.name)}"
    if facts.about is not None and facts.taught:
        return f"{head} was taught to look {_glossed(facts.about)}"
    if facts.about is not None:
        head = head.replace(",", f" of layer {trace.projection.layer},", 1)
        return f"{head} was taught nothing: it is named for looking {facts.about}"
    head = head.replace(",", f" of layer {trace.projection.layer},", 1)
    return f"{head} was given no relation to find: it learned what helps the layers above it"


def _accuracy(trace: Trace, facts: Learned) -> list[str]:
    """Return how often a learned head is right, where it was measured."""
    if facts.accuracy is None or facts.baseline is None or facts.scored_on is None:
        return ["How often it is right was not measured."]
    if untested := _untested(trace):
        return [f"How often it is right {' and '.join(untested)} was not measured."]
    sentences = [
        f"On held-out text ({visible(facts.scored_on.partition('.')[0])}), its strongest link is right for "
        f"{facts.accuracy:.1%} of the words that have the relation; the best fixed distance is right for "
        f"{facts.baseline:.1%}."
    ]
    if facts.precision is not None:
        sentences.append(f"Of its strongest links to another word, {facts.precision:.1%} are right.")
    if facts.content is not None:
        sentences.append(_lives_on(facts.accuracy, facts.hard, facts.content))
    return sentences


def _lives_on(accuracy: float, hard: float | None, content: float) -> str:
    """Return whether a head finds its words by what they are, by their distance, or by both, and how that shows."""
    without = f"without what it adds for the distance, it is right for {content:.1%}"
    if hard is None:
        return f"{without[0].upper()}{without[1:]}: it lives on the distance."
    if hard < ON_DISTANCE * accuracy:
        what = "it lives on the distance"
    elif content >= ON_WORDS * accuracy:
        what = "it lives on the words themselves"
    else:
        what = "it needs both, the words and their distance"
    return f"Where that distance is wrong, it is right for {hard:.1%}; {without}: {what}."


def _untested(trace: Trace) -> list[str]:
    """Return under which of this trace's conditions heads are not scored."""
    is_taught = trace.learned is None or trace.learned.taught
    conditions = {
        "across two texts": not trace.is_self,
        "under a mask": is_taught and trace.mask_name != "none",
        "under this mask": not is_taught and trace.mask_name not in ("none", "causal"),
        "without a mask": not is_taught and trace.mask_name == "none",
        f"with {trace.score} scores": trace.score != "scaled",
        f"on {trace.settings.tokenizer}": trace.settings.tokenizer == "characters",
    }
    return [name for name, holds in conditions.items() if holds]


def closing(trace: Trace, with_learned: bool = True) -> Iterator[Block]:
    """Yield what follows the numbers: a model's words, settings, what the head was taught, dropped marks, notes."""
    if trace.next_words is not None:
        from attn_cli.render.views.next_words import next_words  # only a pretrained model has some

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
        from attn_cli.render.views.next_words import in_a_line  # only a pretrained model has some

        words = in_a_line(trace, trace.next_words)
    return [*words, *trace.notes, *([f"Dropped: {marks}"] if marks else [])]
