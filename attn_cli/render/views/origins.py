"""Where the numbers come from: vectors, weights, scale, mask, and what a learned head was trained for."""

from __future__ import annotations

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.io.escape import count, visible
from attn_cli.models.model_file import BUNDLED
from attn_cli.render.numbers import plain
from attn_cli.render.screen.text import listed
from attn_cli.render.views.wording import GLOSSES, ON_DISTANCE, ON_WORDS, d_k, head_named, of_layers, short
from attn_cli.trace.head import Learned
from attn_cli.trace.trace import Trace


def setting_parts(trace: Trace) -> list[str]:
    """Return the settings behind the numbers, each in a few words."""
    parts = _score_parts(trace) if trace.is_scored else [_origin(trace)]
    parts.append("no mask" if trace.mask_name == "none" else f"mask {trace.mask_name}")
    if trace.has_layers:
        parts.append(f"layers 0 to {trace.projection.layer}")
    elif trace.projection.source == "given" and trace.projection.layer is not None:
        parts.append(f"layer {trace.projection.layer}" + of_layers(trace.stack_layers))
    elif trace.learned is not None and trace.learned.layers > 1:
        parts.append(f"layer {trace.projection.layer}" + of_layers(trace.learned.layers))
    if len(trace.head_names) > 1:
        n = len(trace.head_names)
        shown = {
            "all": f"all {n} heads",
            "mean": f"mean of {n} heads",
            "rollout": f"rollout, from the mean of {n} heads",
        }
        if trace.has_layers:
            shown = {name: f"{text} of each" for name, text in shown.items()}
        parts.append(shown.get(trace.settings.head or "", f"{head_named(trace.shown.name)} (one of {n})"))
    elif trace.kind == "show" and trace.shown.name not in ("0", "mean"):
        parts.append(head_named(trace.shown.name))
    return parts


def _origin(trace: Trace) -> str:
    """Return whose the weights are, where no scores made them."""
    if trace.kind == "show":
        return f"Weights given by {trace.embedding.name}"
    return f"Made of the weights of {trace.projection.name}"


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
        return f"W: identity, so Q = {'X and K = V = the context' if trace.has_second_input else 'K = V = X'}"
    if about.source == "random":
        return f"W: random, seed {about.seed}, layout in-out (x W)"
    if about.source == "learned":
        return f"W: {about.name}, learned, layout in-out (x W)"
    return f"W: {about.name}, layout {about.layout} ({rule})"


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
        taught = [] if trace.shown.name == "mean" else [f"{_taught(trace, facts)}."]
        return [*taught, origin, *(_accuracy(trace, facts) if taught else ())]
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
        return f"{head} was not trained for any relation; it was found to look {facts.about}, and is named after that"
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
        return f"{without[0].upper()}{without[1:]}: it relies mainly on distance."
    if hard < ON_DISTANCE * accuracy:
        what = "it relies mainly on distance"
    elif content >= ON_WORDS * accuracy:
        what = "it relies mainly on the words themselves"
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
