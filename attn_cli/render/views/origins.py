"""What stands below the numbers of a screen: a model's next words, where the numbers come from, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_cli.core.scores import GIVEN, score_named
from attn_cli.errors import count, visible
from attn_cli.models.model_file import BUNDLED
from attn_cli.models.projection import KIND, LENGTHEN
from attn_cli.render import (
    Bars,
    Block,
    Columns,
    Heading,
    Say,
    joined,
    listed,
    plain,
    quoted,
    quoted_at,
    share,
    short,
)
from attn_cli.render.views import wording
from attn_cli.settings import LIKENESS, WITH_RESIDUAL
from attn_cli.text.wordpieces import SPACE
from attn_cli.trace import Learned, NextWord, NextWords, Trace

MOST_MARKS = 20
# A head relies on distance if it is right for less than this share of its score where the best fixed distance is
# wrong, and on the words if it keeps this share of its score without its term for the distance.
ON_DISTANCE, ON_WORDS = 0.5, 0.8
# Terms of grammar in what a head was taught, explained where they stand.
GLOSSES = {
    "its governor": "the word it depends on",
    "determiner": "the, a, this",
    "possessor": "whose it is",
    "joined word": "as after and",
    "like kind": "noun or verb, one or many: what U tells apart",
}


def closing(trace: Trace, with_learned: bool = True) -> Iterator[Block]:
    """Yield what follows the numbers: next words, settings, what the head was trained for, dropped marks, notes."""
    yield from next_words(trace)
    said = [f"{'; '.join(setting_parts(trace))}.", *(learned(trace)[:1] if with_learned else [])]
    yield from (Say(sentence, quiet=True) for sentence in said)
    yield from notes(trace)


def notes(trace: Trace) -> Iterator[Say]:
    """Yield the marks that the tokenizer dropped, and the notes."""
    yield from (Say(line, quiet=True) for line in dropped(trace))
    yield from (Say(f"Note: {note}") for note in trace.notes)


def dropped(trace: Trace) -> list[str]:
    """Return a line with the marks that the tokenizer dropped, if any."""
    marks = list(dict.fromkeys(short(mark) for mark in trace.dropped))
    more = " ..." if len(marks) > MOST_MARKS else ""
    return [f"Dropped: {' '.join(marks[:MOST_MARKS])}{more}"] if marks else []


def talk(trace: Trace) -> list[str]:
    """Return the notes for standard error, where the output has no room for them."""
    said = list(trace.notes)
    if (found := trace.next_words) is not None:
        likeliest = ", ".join(f"{quoted(one.word)} {share(one.probability)}" for one in found.words)
        said.insert(0, f"{_after_which(trace, found)} {likeliest}.")
    marks = listed(list(dict.fromkeys(trace.dropped)), MOST_MARKS)
    return said + [f"Dropped: {marks}"] * bool(marks)


# What a model says


def next_words(trace: Trace) -> Iterator[Block]:
    """Yield the likeliest tokens with their probabilities, and a sentence on what they are; nothing without any."""
    found = trace.next_words
    if found is None:
        return
    yield Heading("What the model says")
    shares = [one.probability for one in found.words]
    unknown = "" if found.unknown is None else f", all words without a vector {share(found.unknown)}"
    yield Bars(_after_which(trace, found), _labelled(found.words), max(shares), "probability")
    yield Say(
        f"The whole vocabulary shares a probability of 1, these tokens {share(sum(shares))} of it{unknown}. All "
        f"layers of the model were computed for them.{_unchanged(trace)}",
        quiet=True,
    )
    yield from leaned(trace)
    if (each := trace.next_words_at) is not None:
        # A row per prefix: its last token, the probability of the one that really comes, the likeliest words.
        digits, rows = len(str(each[-1].place)), []
        for one in each:
            likeliest = [f"{word} {share(probability)}" for word, probability in _labelled(one.words)]
            actual = "–" if one.actual is None else share(one.actual)
            rows.append([f"{one.place:>{digits}} {one.token}", actual, *likeliest])
        yield Heading("After each token", 2)
        ranks = [f"{n}." for n in range(1, len(rows[0]) - 1)]
        yield Columns([f"{'':{digits}} after", "actual", *ranks], rows)
        if any(one.actual is not None for one in each):
            unknown = " A word that the model does not know has that of all unknown ones together."
            unknown *= bool(trace.learned is not None and trace.unknown)
            yield Say(f"actual: the probability of the token that really comes next.{unknown}", quiet=True)


def leaned(trace: Trace) -> Iterator[Say]:
    """Yield which head adds most to the guess of a language model, and what becomes of the guess without it."""
    if (found := trace.lean) is not None:
        whole, left = map(share, found.probabilities)
        instead = "" if found.instead == found.word else f", behind {quoted(found.instead)}"
        head = f"Head {found.layer}.{found.head} adds most to {quoted(found.word)}"
        rises = ", for it helps other words more" * (found.probabilities[1] > found.probabilities[0])
        yield Say(f"{head}: without it {whole} becomes {left}{instead}{rises}.")


def _after_which(trace: Trace, found: NextWords) -> str:
    is_there = trace.query_tokens[found.place : found.place + 1] == (found.token,)  # pieces may be joined
    token = quoted_at(trace.query_tokens, found.place) if is_there else quoted(found.token)
    return f"Likeliest to {'fill' if found.fills else 'come after'} {token}:"


def _unchanged(trace: Trace) -> str:
    """Return which options change the layer that is shown, and not the model's words."""
    settings, is_learned = trace.settings, trace.learned is not None
    changed = {
        "--mask": settings.mask not in (None, "causal" if is_learned else None),  # that of a language model
        "--without": settings.without,
        "--score": is_learned and settings.score not in (None, "scaled"),
        "--temperature": settings.temperature != 1,
        "--positions": settings.positions == "sinusoidal",
        "--round": settings.round is not None,
    }
    names = [option for option, is_set in changed.items() if is_set]
    holds = f"{'holds' if len(names) == 1 else 'hold'} {'for the weights' if is_learned else 'in the layer shown'}"
    return f" {joined(names)} {holds}, not for them." if names else ""


def _labelled(words: Sequence[NextWord]) -> list[tuple[str, float]]:
    # A space can be seen: in front it tells a new word from a piece.
    return [(one.word.replace(" ", SPACE), one.probability) for one in words]


# Settings


def setting_parts(trace: Trace) -> list[str]:
    """Return the settings behind the numbers, each in a few words."""
    layer, n, about = trace.projection.layer, len(trace.head_names), trace.learned
    parts = [f"Made of the weights of {trace.projection.name}"]
    if trace.is_scored:
        parts = _score_parts(trace)
    elif trace.kind == "show":
        parts = [f"Weights given by {trace.embedding.name}"]
    parts.append("no mask" if trace.mask_name == "none" else f"mask {trace.mask_name}")
    if trace.has_layers:
        parts.append(f"layers 0 to {layer}")
    elif trace.projection.source == "given" and layer is not None:
        parts.append(f"layer {layer}{wording.of_layers(trace.stack_layers)}")
    elif about is not None and about.layers > 1:
        parts.append(f"layer {layer}{wording.of_layers(about.layers)}")
    named = wording.head_named(trace.shown.name)
    if n > 1:
        mean = f"mean of {n} heads" if trace.settings.measure != WITH_RESIDUAL else f"all {n} heads together"
        several = {"all": f"all {n} heads", "mean": mean, "rollout": f"rollout, from the {mean}"}
        shown = several.get(trace.settings.head or "")
        parts.append(shown + " of each" * trace.has_layers if shown else f"{named} (one of {n})")
    elif trace.kind == "show" and trace.shown.name not in ("0", "mean"):
        parts.append(named)
    return parts


def _score_parts(trace: Trace) -> list[str]:
    score, about, rounded = score_named(trace.score), trace.embedding, trace.settings.round
    is_root = score.is_scaled and trace.own_scale is None
    found = {
        projection(trace): trace.score != GIVEN,
        f"scale {f'1/sqrt({wording.d_k(trace)}) = ' if is_root else ''}{plain(trace.scale)}": True,
        f"scores capped at {plain(trace.softcap or 0.0)}": trace.softcap is not None,
        "a sink in each row": trace.heads[0].sink is not None,
        f"temperature {trace.temperature:.12g}": trace.temperature != 1,
        score.note: bool(score.note),
        f"{trace.positions} positions added": trace.positions != "none",
        f"inputs rounded to {count(rounded or 0, 'digit', 'digits')}, then computed": rounded is not None,
    }
    length = "" if about.length is None else f", each of length {plain(about.length)}"
    is_spelled = trace.learned is not None and trace.learned.spelled and not trace.projection.layer
    more = ", and what spelling adds" if is_spelled else ""
    vectors = f"Vectors: {about.name}, {about.dim} numbers each{length}{more}"
    if trace.score == GIVEN:
        vectors = f"Scores given by {about.name}"
    elif about.source == "given":
        vectors = f"Model {about.name}" if trace.of_model else f"Matrices given by {about.name}"
    elif about.source == "random":
        vectors = f"Vectors: random, {about.dim} numbers each, seed {about.seed}"
    return [vectors, *(part for part, holds in found.items() if holds)]


def projection(trace: Trace) -> str:
    """Return where W_q, W_k and W_v come from, and their layout."""
    about = trace.projection
    split = ", columns split" if len(trace.head_names) > 1 else ""
    if trace.heads[0].W_q is None:
        if about.source == "given":
            return "Q, K and V as it makes them" if trace.of_model else "Q, K and V as given"
        seed = "" if about.seed is None else f", seed {about.seed}"
        made = f"W_q and W_k: {about.name}{seed}, layout {about.layout}"
        made = f"Q and K are the vectors themselves{split}" if about.source == "identity" else made
        return f"{made}; V are the values"
    if about.source == "identity":
        of_one = f", so Q = {'X and K = V = the context' if trace.has_second_input else 'K = V = X'}"
        return f"W: identity{split or of_one}"
    if about.name == LIKENESS:
        return f"W: likeness, W_q = {LENGTHEN} (I + {KIND} U U^T), W_k = W_v = I"
    hows = {"random": f"random, seed {about.seed}", "learned": f"{about.name}, learned"}
    how = hows.get(about.source, about.name)
    return f"W: {how}, layout {about.layout} ({'x W' if about.layout == 'in-out' else 'W x'})"


# What a learned head was trained for


def learned(trace: Trace) -> list[str]:
    """Return sentences about a learned head: what it was trained for, on which texts, and its score."""
    facts = trace.learned
    if facts is None:
        return []
    how = f"with attn learn {'train' if facts.taught else 'language'}"
    how = "by this project" if facts.model in (*BUNDLED, LIKENESS) else how
    what = "to guess the next word of running text: a small language model."
    if facts.taught:
        passages = [name for name in facts.trained_on if ".jsonl" in name.lower()]
        treebanks = [name for name in facts.trained_on if name not in passages]
        trees = "a treebank" if len(treebanks) == 1 else "treebanks"
        kinds = {trees: treebanks, "passages with marked pronouns": passages}
        told = [(kind, map(_named, names)) for kind, names in kinds.items() if names or not facts.trained_on]
        sources = " and ".join(f"{kind} ({listed([*names])})" for kind, names in told)
        what = f"on {sources}, and is not a large language model."
    origin = f"{facts.model} was trained {how} {what}"
    if trace.shown.name == "mean":
        return [origin]
    return [f"{_taught(trace, facts)}.", origin, *_accuracy(trace, facts)]


def learned_briefly(trace: Trace) -> list[str]:
    """Return a sentence on what a learned head was trained for, and how often it is right."""
    facts = trace.learned
    if facts is None or trace.shown.name == "mean":
        return []
    right = ": how often it is right here was not measured" if facts.about is not None else ""
    if right and not _untested(trace) and facts.accuracy is not None and facts.baseline is not None:
        fixed = f"(best fixed distance: {facts.baseline:.1%})"
        right = f": in unseen text, right for {facts.accuracy:.1%} {fixed}"
    return [f"{_taught(trace, facts)}{right}."]


def _named(file: str) -> str:
    return visible(file.partition(".")[0])


def _taught(trace: Trace, facts: Learned) -> str:
    n, name, about = len(trace.head_names), short(trace.shown.name), facts.about
    one_of = f", one of {n}," if n > 1 else ""
    if about is not None and facts.taught:
        for term, meaning in GLOSSES.items():
            about = about.replace(term, f"{term} ({meaning})", 1)
        return f"Head {name}{one_of} was taught to look {about}"
    head = f"Head {name}" + (f" of layer {trace.projection.layer}{one_of}" if one_of else "")
    if about is not None:
        found = f"it was found to look {about}, and is named after that"
        return f"{head} was not trained for any relation; {found}"
    return f"{head} was given no relation to find: it learned what helps the layers above it"


def _accuracy(trace: Trace, facts: Learned) -> list[str]:
    if facts.accuracy is None or facts.baseline is None or facts.scored_on is None:
        return ["How often it is right was not measured."]
    if untested := _untested(trace):
        return [f"How often it is right {' and '.join(untested)} was not measured."]
    sentences = [
        f"On held-out text ({_named(facts.scored_on)}), its strongest link is right for {facts.accuracy:.1%} of the "
        f"words that have the relation; the best fixed distance is right for {facts.baseline:.1%}."
    ]
    if facts.precision is not None:
        sentences.append(f"Of its strongest links to another word, {facts.precision:.1%} are right.")
    if facts.content is not None:
        where, what = "W", "it relies mainly on distance"
        if facts.hard is not None:
            where = f"Where that distance is wrong, it is right for {facts.hard:.1%}; w"
            if facts.hard >= ON_DISTANCE * facts.accuracy:
                on_words = facts.content >= ON_WORDS * facts.accuracy
                what = "it needs both, the words and their distance"
                what = "it relies mainly on the words themselves" if on_words else what
        adds = "ithout what it adds for the distance, it is right for"
        sentences.append(f"{where}{adds} {facts.content:.1%}: {what}.")
    return sentences


def _untested(trace: Trace) -> list[str]:
    """Return under which of this trace's conditions heads are not scored."""
    is_taught, mask = trace.learned is None or trace.learned.taught, trace.mask_name
    across = trace.projection.name == LIKENESS  # it is scored on pairs of texts
    conditions = {
        "within one text": trace.is_self and across,
        "across two texts": not trace.is_self and not across,
        "under a mask": is_taught and mask != "none",
        "under this mask": not is_taught and mask not in ("none", "causal"),
        "without a mask": not is_taught and mask == "none",
        f"with {trace.score} scores": trace.score != "scaled",
        f"on {trace.settings.tokenizer}": trace.settings.tokenizer == "characters",
    }
    return [name for name, holds in conditions.items() if holds]
