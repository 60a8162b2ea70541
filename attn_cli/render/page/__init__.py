"""The interactive page: a record of numbers, and the modules that compute with them in the browser, in one file."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from attn_cli.core.masks import MASKS, find_rule, rule_in
from attn_cli.core.scores import SCORES, Score
from attn_cli.errors import InputError, refuse, visible
from attn_cli.io.types import replace
from attn_cli.pipeline.for_page import Page, why_not_typed
from attn_cli.render.page.script import Numbers, layer_of, policy, read, script, style
from attn_cli.render.ramps import DIVERGING_DARK, NIGHT, PAPER, between, ramp
from attn_cli.render.views import origins, step_sentences, wording
from attn_cli.render.walk import STEPS
from attn_cli.settings import WEIGHT, WITH_RESIDUAL, Settings, as_typed, find_rows
from attn_cli.trace import LARGE, Trace

MOST_TYPED = 60  # words of a sentence that is typed in
STEP_KEYS = ("name", "title", "formula", "sentence", "alone")
SENT_FACTS = ("numbering", "projection", "position", "weights", "apply_q", "apply_k", "apply_v")
ABOUT_NORMS = "A norm is the length of what a word adds through its value: no share, and of no fixed sum."
# In a script element nothing ends it but its end tag, and nothing starts another but these signs.
UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page(of: Page, look: str = "") -> str:
    """Return the page as HTML: one file, which loads nothing and sends nothing; `look` is CSS of its surroundings."""
    numbers = Numbers()
    trace, made = record(of, numbers)
    data = json.dumps(made, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    sheet, code = style() + look, script()
    settings = origins.setting_parts(trace)[: 2 if trace.is_scored else 1]  # others are chosen in the page
    notes = "".join(f"<li>{_text(note)}</li>" for note in [*trace.notes, *_about_bytes(made)])
    parts = {
        "policy": policy(code, sheet),
        "title": _text(wording.title(trace)),
        "style": sheet,
        "about": _text(f"{'; '.join(settings)}."),
        "learned": _text(" ".join([*[ABOUT_NORMS] * bool(made["norms"]), *origins.learned_briefly(trace)])),
        "notes": f"<ul>{notes}</ul>" if notes else "",
        "arrays": "\n".join(numbers.elements),
        "record": data.translate(UNSAFE),  # no sign of HTML is left
        "script": code,
    }
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], read("page.html"))


def _text(text: str) -> str:
    return escape(visible(text))


def _about_bytes(made: dict[str, Any]) -> list[str]:
    """Return the note on heads that are held as rounded weights, if some are."""
    heads = [(layer["number"], head) for layer in made["layers"] for head in layer["heads"]]
    full = [f"{number}/{head['name']}" for number, head in heads if "tops" not in head]
    if len(full) == len(heads):
        return []
    step = min(head["levels"] for _, head in heads if "levels" in head)
    held = f"in full: {', '.join(full)}" if full else "none is held in full"
    return [
        f"{len(heads) - len(full)} of {len(heads)} heads are held as rounded weights, right to {0.5 / step:.3f} of "
        f"the largest in their row; {held} (--exact)."
    ]


def record(page: Page, numbers: Numbers) -> tuple[Trace, dict[str, object]]:
    """Return the trace that the page opens with, and the record of all its layers; arrays go into `numbers`."""
    shown: Trace | None = None
    layers = []
    for place, trace in enumerate(page.layers):  # one after the other: only the shown one is kept
        if trace.condensed:
            n_q, n_k = len(trace.query_tokens), len(trace.key_tokens)
            said = f"A page holds at most {LARGE:,} weights a head; these are {n_q:,} x {n_k:,}."
            raise InputError(said, "Give a shorter text.")
        shown = trace if place == page.shown else shown
        layers.append(layer_of(trace, page, place, numbers))
    assert shown is not None  # the page names one of its layers
    what = f"A page has norms head by head, and no --measure {WITH_RESIDUAL}."
    refuse(shown.settings.measure == WITH_RESIDUAL, what, "Try --measure norm.", "--measure")
    vectors, projection = shown.embedding, shown.projection
    vectors = vectors._replace(name=_file_name(vectors.name))
    projection = projection._replace(name=_file_name(projection.name))
    shown = replace(shown, embedding=vectors, projection=projection)
    return shown, _of_trace(shown, numbers) | {
        "shown": {"layer": page.shown, "head": shown.shown.name, "row": shown.focus[0]},
        "writing": dict(page.writing) or None,
        "layers": layers,
        "vocabulary": _vocabulary(page, shown.settings, numbers),
        "untyped": _why_not_typed(page, shown),
        "command": _command(page, shown),
    }


def _file_name(name: str | None) -> str | None:
    """Return the last part of a path; a name such as `org/model`, which is no path here, stays."""
    if name is None:
        return None
    path = Path(name)
    is_path = name.startswith(("/", ".", "~")) or path.is_absolute() or path.exists()
    return (path.name or path.resolve().name) if is_path else name


def _of_trace(trace: Trace, numbers: Numbers) -> dict[str, object]:
    what = f"The score {trace.score} has no JavaScript, so no page can compute it."
    refuse(trace.score in SCORES and SCORES[trace.score].javascript is None, what, option="--score")
    # With one text, a mask from the other corner is the causal one.
    rules = {name.partition(":")[0]: rule for name, rule in MASKS.items() if rule.javascript}
    masks = [name for name, rule in rules.items() if trace.has_second_input or rule.corner != "bottom-right"]
    padding, tokens, is_scored = trace.pad_keys, trace.query_tokens, trace.is_scored
    steps = STEPS if trace.heads[0].sink is None else [step.without_sum() for step in STEPS]
    facts = step_sentences.walk_facts(trace, trace.stepped_head) if is_scored else {}
    ramps = {"light": ramp(PAPER), "lightSigned": ramp(PAPER, True)}
    ramps |= {"dark": between(NIGHT), "darkSigned": between(DIVERGING_DARK)}
    off = sorted({key for one in trace.settings.without for key in find_rows(one, trace.key_tokens)})
    at = {} if trace.x_query is None else dict(enumerate(tokens))
    sources = {token: step_sentences.source(trace, i) for i, token in at.items()}
    titles = [wording.kind_of(trace, masked) for masked in (False, True)]
    made: dict[str, object] = {"schema": "attn-page/1", "kind": trace.kind, "title": titles}
    made |= {"queries": tokens, "keys": trace.key_tokens, "ids": trace.query_input_ids}
    made |= {"apart": trace.has_second_input, "unknown": trace.unknown, "dropped": trace.dropped}
    made["scored"] = is_scored and trace.score in SCORES
    made["score"] = trace.score if trace.score in SCORES else "scaled"
    made |= {"temperature": trace.temperature, "tempers_distance": trace.temperature_scales_distance}
    made |= _mask(trace, numbers) | {"padding": [padding.start, padding.stop], "off": off}
    return made | {
        "below": trace.learned is not None and trace.learned.layers > 1,
        "scores": {
            name: _score(name, score) for name, score in SCORES.items() if score.javascript is not None
        },
        "masks": masks,
        "steps": [{key: getattr(step, key) for key in STEP_KEYS} for step in steps if _has(trace, step.name)],
        # What the sentences of the walk say that no setting of the page changes.
        "facts": {name: facts[name] for name in SENT_FACTS if is_scored},
        # Of q, k and v those that only repeat X: of these the walk shows the query's own row.
        "repeats": [
            name for name in "qkv" if is_scored and step_sentences.repeats_x(trace, trace.stepped_head, name)
        ],
        # Whether there are norms, and W_o is in them: then those of other values are not computed here.
        "norms": trace.settings.measure != WEIGHT and {"joined": trace.of_model or trace.W_o is not None},
        "sources": sources,
        "ramps": {name: b"".join(map(bytes, colours)).hex() for name, colours in ramps.items()},
    }


def _score(name: str, score: Score) -> dict[str, object]:
    label, about = score.javascript and score.javascript.label, f"{name}: {score.help.partition(' is ')[2]}"
    made: dict[str, object] = {"term": label, "symbol": score.symbol, "matrix": score.matrix}
    return made | {"isScaled": score.is_scaled, "help": about}


def _has(trace: Trace, step: str) -> bool:
    """Tell whether there can be numbers for a step of the walk; the mask can be changed, and is always there."""
    if step in ("masked_scores", "weights"):
        return trace.is_scored or step == "weights"
    of_text = {"tokens": trace.query_ids, "encodings_query": trace.placed, "x_query": trace.x_query}
    return (of_text[step] if step in of_text else getattr(trace.stepped_head, step)) is not None


def _mask(trace: Trace, numbers: Numbers) -> dict[str, object]:
    """Return the mask by its rule's name, or as an array under the name `given`."""
    name = rule_in(trace.mask_name)
    found = find_rule(name)
    if found is not None and found[0].javascript:
        return {"mask": name, "maskLabel": name, "allowed": None}
    assert trace.mask is not None
    return {"mask": "given", "maskLabel": name, "allowed": numbers.add_bytes(trace.mask)}


def _vocabulary(page: Page, settings: Settings, numbers: Numbers) -> dict[str, object] | None:
    words = page.words
    if words is None:
        return None
    made: dict[str, object] = {"words": words.words, "vectors": numbers.add(words.vectors)}
    made |= {"features": words.features, "starts": numbers.add(words.starts), "always": words.always}
    made |= {"oov": words.oov, "tokenizer": settings.tokenizer}
    return made | {"keepPunctuation": settings.keep_punctuation, "most": MOST_TYPED}


def _why_not_typed(page: Page, trace: Trace) -> str:
    """Return why no other sentence can be typed into the page, in a sentence; nothing where one can."""
    if page.words is not None:
        return ""
    empty = "it carries no words to type with (attn page carries some)"
    reason = why_not_typed(trace, trace.settings) or empty
    if page.n_layers > 1 or trace.of_model:
        reason = "it has the numbers of a model's layers for this text, and not the model"
    elif page.text is None:
        reason = "its numbers were given, and not made of a text"
    return f"No other sentence can be typed into this page: {reason}."


def _command(page: Page, trace: Trace) -> dict[str, object] | None:
    """Return the command that made the trace, without what the page itself chooses; None where it was no text."""
    if page.text is None or trace.kind not in ("self", "masked", "cross"):
        return None
    made: dict[str, object] = {"words": ["attn", trace.kind], "options": as_typed(trace.settings, LIVE)}
    after = [] if page.context is None else [page.context]
    score = trace.score if trace.settings.score is None else "scaled"
    return made | {"text": page.text, "after": after, "head": trace.head_names[0], "score": score}


# What the page itself chooses, or what changes no weight.
OF_PAGE = ("head", "layer", "score", "temperature", "mask", "mask_true", "without", "query", "versus")
LIVE = (*OF_PAGE, "top", "full", "next", "next_at", "threads")
