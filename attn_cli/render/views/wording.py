"""What every screen says of its numbers: title, settings, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.core.scores import score_named
from attn_cli.io.escape import visible
from attn_cli.io.plural import count
from attn_cli.models.model_file import BUNDLED
from attn_cli.render.blocks import Block, Say
from attn_cli.render.numbers import plain
from attn_cli.render.screen.text import listed
from attn_cli.trace.trace import Trace

KINDS = {
    "self": "self-attention",
    "masked": "self-attention",
    "cross": "cross-attention",
}
LONGEST = 24
MOST_CELLS = 20_000  # of a matrix that is drawn
FEW_KEYS = 36  # so many can always stand in a row, or a list


def short(token: str) -> str:
    """Return a token for use in a sentence, its middle left out if it is very long."""
    return token if len(token) <= LONGEST else f"{token[:16]}...{token[-4:]}"


def quoted(token: str) -> str:
    """Return a token in quotation marks, to stand out in a sentence."""
    return f'"{short(token)}"'


def told_apart(tokens: Sequence[str], i: int) -> str:
    """Return token i in quotation marks, with its place if it stands there more than once."""
    return quoted(tokens[i]) + (f" ({i})" if tokens.count(tokens[i]) > 1 else "")


def placed(tokens: Sequence[str], i: int) -> str:
    """Return token i for a label, after its place if it stands there more than once; a cut label keeps its start."""
    return f"{i} {short(tokens[i])}" if tokens.count(tokens[i]) > 1 else short(tokens[i])


def is_large(trace: Trace) -> bool:
    """Tell whether a map stands for the weights, and a few strongest keys for a row."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    return trace.condensed or (n_q * n_k > MOST_CELLS and n_k > FEW_KEYS)


def title(trace: Trace) -> str:
    """Return the screen's title: what kind of attention, and how many look at how many."""
    n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
    kind = KINDS.get(trace.kind, "attention")
    if trace.kind == "show" and trace.is_self and trace.query_ids is not None:
        kind = KINDS["self"]
    kind = f"Masked {kind}" if trace.mask_name != "none" else kind.capitalize()
    return f"{kind}: {count(n_q, 'query (row)', 'queries (rows)')} x {count(n_k, 'key (column)', 'keys (columns)')}"


def formula(trace: Trace) -> str:
    """Return the formula of the weights, with this trace's own numbers in it."""
    if not trace.is_scored:
        return "weights as given"
    score = score_named(trace.score)
    scaled = score.symbol + (f" / √{d_k(trace)}" if score.is_scaled else "")
    head = trace.heads[0]
    if head.position_vectors is not None:  # learned: divided by the temperature as the rest is
        scaled += " + position"
        return f"weights = softmax({scaled if trace.temperature == 1 else f'({scaled}) / {warmth(trace)}'})"
    if trace.temperature != 1:
        scaled += f" / {warmth(trace)}"
    return f"weights = softmax({scaled}{' + position' if head.position_scores is not None else ''})"


def warmth(trace: Trace) -> str:
    """Return the temperature as it was typed."""
    return f"{trace.temperature:.12g}"


def d_k(trace: Trace) -> int:
    """Return how many numbers a query has."""
    q = trace.heads[0].q
    return 0 if q is None else int(q.shape[1])


def settings(trace: Trace) -> str:
    """Return one sentence with the settings that made the numbers."""
    return "; ".join(setting_parts(trace)) + "."


def setting_parts(trace: Trace) -> list[str]:
    """Return the settings that made the numbers, each in a few words."""
    parts = _made(trace) if trace.is_scored else [f"Weights given by {trace.embedding.name}"]
    parts.append("no mask" if trace.mask_name == "none" else f"mask {trace.mask_name}")
    if trace.kind == "show" and trace.projection.layer is not None:
        parts.append(f"layer {trace.projection.layer}")
    if trace.learned is not None and trace.learned.layers > 1:
        parts.append(f"layer {trace.projection.layer} of 0 to {trace.learned.layers - 1}")
    if len(trace.head_names) > 1:
        n = len(trace.head_names)
        shown = {"all": f"all {n} heads", "mean": f"mean of {n} heads"}
        parts.append(shown.get(trace.settings.head or "", f"head {trace.shown.name} of {n}"))
    elif trace.kind == "show" and trace.shown.name not in ("0", "mean"):
        parts.append(f"head {trace.shown.name}")
    return parts


def _made(trace: Trace) -> list[str]:
    """Return what made the scores: vectors, weights, scale."""
    parts = [_vectors(trace), projection(trace)]
    score = score_named(trace.score)
    parts.append(f"scale 1/sqrt({d_k(trace)}) = {plain(trace.scale)}" if score.is_scaled else "scale 1")
    if trace.temperature != 1:
        parts.append(f"temperature {warmth(trace)}")
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
        return f"Matrices given by {about.name}"
    if about.source == "random":
        return f"Vectors: random, {about.dim} numbers each, seed {about.seed}"
    length = "" if about.length is None else f", each of length {plain(about.length)}"
    return f"Vectors: {about.name}, {about.dim} numbers each{length}"


def projection(trace: Trace) -> str:
    """Return where W_q, W_k and W_v come from, and their layout."""
    about = trace.projection
    if trace.heads[0].W_q is None:
        return "Q, K and V as given" if about.source == "given" else _keys_alone(trace)
    rule = "x W" if about.layout == "in-out" else "W x"
    if about.source == "identity":
        if len(trace.head_names) > 1:
            return "W: identity, columns split"
        cross = trace.apart
        return f"W: identity, so Q = {'X and K = V = the context' if cross else 'K = V = X'}"
    if about.source == "random":
        return f"W: random, seed {about.seed}, layout in-out (x W)"
    if about.source == "learned":
        return f"W: {about.name}, learned, layout in-out (x W)"
    return f"W: {about.name}, layout {about.layout} ({rule})"


def _keys_alone(trace: Trace) -> str:
    """Return where Q and K come from, where the values are no word vectors but given."""
    about = trace.projection
    if about.source == "identity":
        split = ", columns split" if len(trace.head_names) > 1 else ""
        return f"Q and K are the vectors themselves{split}; V are the values"
    seed = "" if about.seed is None else f", seed {about.seed}"
    return f"W_q and W_k: {about.name}{seed}, layout {about.layout}; V are the values"


def learned(trace: Trace) -> list[str]:
    """Return what is to be told of a learned head, in sentences: what it was taught, on what, and its score."""
    told = trace.learned
    if told is None:
        return []
    treebanks = listed([visible(name.partition(".")[0]) for name in told.trained_on])
    one = "a treebank" if len(told.trained_on) == 1 else "treebanks"
    whose = "by this project" if told.model in BUNDLED else "with attn learn train"
    origin = f"{told.model} was trained {whose} on {one} ({treebanks}), and is not a large language model."
    if trace.shown.name == "mean":
        return [origin]
    if told.about is None:
        head = f"Head {short(trace.shown.name)} of layer {trace.projection.layer}"
        return [f"{head} was given no relation to find: it learned what helps the layers above it.", origin]
    said = [f"Head {short(trace.shown.name)} was taught to look {told.about}.", origin]
    if told.accuracy is not None and told.baseline is not None and told.scored_on is not None:
        unlike = _unlike_lessons(trace)
        held_back = visible(told.scored_on.partition(".")[0])
        said.append(
            f"How often it is right {' and '.join(unlike)} was not measured."
            if unlike
            else f"On held-out text ({held_back}), its strongest link is right for {told.accuracy:.1%} of the "
            f"words that have the relation; the best fixed distance is right for {told.baseline:.1%}."
        )
        if told.precision is not None and not unlike:
            said.append(f"Of its strongest links to another word, {told.precision:.1%} are right.")
    else:
        said.append("How often it is right was not measured.")
    return said


def _unlike_lessons(trace: Trace) -> list[str]:
    """Return in what this differs from how heads are trained and scored."""
    differences = {
        "across two texts": not trace.is_self,
        "under a mask": trace.mask_name != "none",
        f"with {trace.score} scores": trace.score != "scaled",
        f"on {trace.settings.tokenizer}": trace.settings.tokenizer == "characters",
    }
    return [name for name, differs in differences.items() if differs]


def closing(trace: Trace, with_learned: bool = True) -> Iterator[Block]:
    """Yield what stands under the numbers: settings, what the head was taught, what was left out, and notes."""
    yield Say(settings(trace), quiet=True)
    for sentence in learned(trace)[:1] if with_learned else ():
        yield Say(sentence, quiet=True)
    yield from dropped(trace)
    for note in trace.notes:
        yield Say(f"Note: {note}")


def dropped(trace: Trace) -> Iterator[Block]:
    """Yield what the tokenizer left out, if anything."""
    if trace.dropped:
        marks = list(dict.fromkeys(short(mark) for mark in trace.dropped))
        yield Say(f"Dropped: {' '.join(marks[:20])}{' ...' if len(marks) > 20 else ''}", quiet=True)


def talk(trace: Trace) -> list[str]:
    """Return what is said on standard error where the output has no room for notes."""
    said = list(trace.notes)
    if trace.dropped:
        said.append(f"Dropped: {listed(list(dict.fromkeys(trace.dropped)), 20)}")
    return said
