"""A pretrained model checked: beside transformers where that is installed, else against what its file says of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import repeat, zip_longest
from typing import Any

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.types import Array, NamedTuple
from attn_cli.models.checkpoints.layers import LayerSteps
from attn_cli.models.checkpoints.open_model import OpenModel, find_folder, open_model
from attn_cli.models.checkpoints.run import Run, texts
from attn_cli.pipeline.sources.checkpoint import Reading, read_texts
from attn_cli.settings import Settings

TEXTS = (
    "The old clock in the hall stopped at noon.",
    "Nobody noticed, because everyone was out in the garden.",
    "When they came back in, they thought that an hour was left.",
)
TOLERANCES = {
    "ids": 0.0, "weights": 1e-5, "inputs": 1e-4, "output": 1e-4, "logits": 1e-4,  # beside transformers
    "keys": 0.0, "sums": 1e-5, "ahead": 0.0, "prefix": 1e-4,  # of the file alone
}  # fmt: skip
Found = tuple[str, float, LayerSteps | None]  # a figure's name, its number on a text, its layer


class Figure(NamedTuple):
    """The largest difference of a kind over all texts: of one attention, or of the whole model."""

    name: str  # of TOLERANCES
    side: str | None
    layer: int | None
    attention: str | None
    largest: float
    tolerance: float


class Verdict(NamedTuple):
    """What the check of a model on some texts gave."""

    source: str
    family: str
    against: str | None  # transformers and its version; None where the file was checked alone
    texts: int
    tokens: int
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]

    @property
    def exceeded(self) -> Figure | None:
        """The first figure that is larger than it may be, from the layer nearest the words on."""
        return next((one for one in self.figures if one.largest > one.tolerance), None)

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        about = {"schema": "attn/1", "kind": "verify", "ok": self.exceeded is None, **self._asdict()}
        return about | {"figures": [one._asdict() for one in self.figures], "notes": [*self.notes]}


def verify(model: str, given: Sequence[str], settings: Settings) -> Verdict:
    """Return how far a model is from transformers on these texts; where that cannot run, what its file alone tells."""
    largest: dict[tuple[str, str | None, int | None, str | None], float] = {}
    tokens, reference = 0, None
    with open_model(model) as opened:
        own = opened.checkpoint.model
        notes, is_pair = [*own.notes], len(own.stacks) > 1
        try:
            reference = _Reference(find_folder(model), opened.checkpoint.run(texts([[0]])))
        except ImportError:
            pass
        except Exception as error:  # whatever a library does with a stranger's file
            reason = visible(" ".join(str(error).split()))[:200]
            notes.append(f"transformers does not read this model ({type(error).__name__}): {reason}")
        for text in sorted(given, key=len):  # a rotation that grows with the text stays grown in transformers
            kind, context = ("cross", text) if is_pair else ("self", None)
            reading = read_texts(kind, text, context, settings, opened)
            tokens += len(reading.key.ids)
            made = _alone(reading, opened) if reference is None else reference.beside(reading, text)
            for name, value, of in made:
                place = (name, None, None, None) if of is None else (name, of.side, of.layer, of.kind)
                largest[place] = max(largest.get(place, 0.0), value)
    figures = tuple(Figure(*place, value, TOLERANCES[place[0]]) for place, value in largest.items())
    against = None if reference is None else reference.name
    return Verdict(opened.name, own.family, against, len(given), tokens, figures, tuple(notes))


class _Reference:
    """A model as transformers computes it in float32, from the same files: offline, without code from the folder."""

    def __init__(self, path: str, run: Run) -> None:
        os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        self.torch: Any = import_module("torch")
        library: Any = import_module("transformers")
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        more: dict[str, object] = {"local_files_only": True, "trust_remote_code": False}
        if not os.path.isdir(path):
            path, more["gguf_file"] = os.path.split(os.path.abspath(path))
        self.name = f"transformers {library.__version__}"
        self.has_head, self.is_pair = run.has_head(), len(run.model.stacks) > 1
        config = library.AutoConfig.from_pretrained(path, **more)
        fills = type(config) in library.MODEL_FOR_MASKED_LM_MAPPING and "encoder" in run.model.stacks
        kind = "ForSeq2SeqLM" if self.is_pair else "ForMaskedLM" if fills else "ForCausalLM"
        read = getattr(library, f"AutoModel{kind if self.has_head else ''}").from_pretrained
        self.has_weights = not getattr(config, "alibi", False)  # for Falcon's with "eager" have ALiBi twice
        how = "eager" if self.has_weights else "sdpa"
        self.model = read(path, attn_implementation=how, dtype=self.torch.float32, **more).eval()
        self.tokenizer = library.AutoTokenizer.from_pretrained(path, **more)

    def beside(self, reading: Reading, text: str) -> Iterator[Found]:
        """Yield how far each number of a text is from this model's, which reads the ids that attn reads."""
        ids, torch = reading.key.ids, self.torch
        yield "ids", float(sum(a != b for a, b in zip_longest(self.tokenizer(text)["input_ids"], ids))), None
        given = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids))}
        if self.is_pair:
            given["decoder_input_ids"] = torch.tensor([reading.query.ids])
        found = [*reading.run.steps()]  # first: its errors are in plain words
        with torch.no_grad():
            expected = self.model(**given, output_attentions=self.has_weights, output_hidden_states=True)
        for steps in found:
            side = "cross_" if steps.kind == "cross" else f"{steps.side}_" if self.is_pair else ""
            if self.has_weights:
                attentions = expected[f"{side}attentions"][steps.layer].numpy()
                yield "weights", _apart(steps.attended.weights, attentions, 1.0), steps
            if steps.kind != "cross":
                yield "inputs", _apart(steps.x, expected[f"{side}hidden_states"][steps.layer].numpy()), steps
        made, name = _made(reading.run, reading.model.name), "logits" if self.has_head else "output"
        yield name, _apart(made, expected["logits" if self.has_head else "last_hidden_state"].numpy()), None


def _made(run: Run, name: str) -> Array:
    """Return the scores of words, or what the last layer makes where there is no head for them."""
    found = run.logits() if run.has_head() else run.output()
    if not np.isfinite(found).all():
        raise InputError(f"{name}: what its last layer makes is not finite.", "Is the file whole?")
    return found


def _apart(found: Array, expected: Array, scale: float | None = None) -> float:
    """Return the largest difference, divided by `scale`, else by the largest expected number if that is above 1."""
    if found.shape != expected.shape or not np.isfinite(expected).all():
        raise InputError(f"transformers gives numbers {expected.shape}, not all finite or not {found.shape}.")
    return float(np.abs(found - expected).max()) / (scale or max(1.0, float(np.abs(expected).max())))


def _alone(reading: Reading, opened: OpenModel) -> Iterator[Found]:
    """Yield what must hold of any such model: rows sum to one, none looks ahead, more text changes nothing before it.

    All layers are computed, and the scores of words, so the shape of each of their tensors is held against config.json.
    """
    yield "keys", float(len(opened.checkpoint.model.notes)), None
    ids, run = reading.query.ids, opened.checkpoint.run
    shorter: Iterable[LayerSteps | None] = repeat(None)
    if reading.side == "decoder":
        part = texts([ids[: len(ids) // 2 or 1]])
        source = texts([reading.key.ids]) if reading.asked == "cross" else None
        shorter = (run(part) if source is None else run(source, part)).steps()
    for steps, few in zip(reading.run.steps(), shorter, strict=False):
        weights = steps.attended.weights
        yield "sums", float(np.abs(weights.sum(axis=-1) + _to_sinks(steps) - 1).max()), steps
        if steps.kind == "masked":
            yield "ahead", float(np.triu(weights, 1).max()), steps
        # By the text's length.
        rotates = steps.before_rotation and len(ids) > steps.before_rotation.rotary.length
        if few is not None and few.side == "decoder" and not rotates:
            _, _, n_q, n_k = few.attended.weights.shape
            apart = _apart(weights[:, :, :n_q, :n_k], few.attended.weights, 1.0)
            yield "prefix", max(apart, _apart(steps.x[:, :n_q], few.x)), steps
    _made(reading.run, opened.name)


def _to_sinks(steps: LayerSteps) -> Array | float:
    """Return what each row gives to its head's sink (b, h, n_q): by its largest weight, and the score of that one."""
    ready, weights = steps.ready, steps.attended.weights
    if ready.sinks is None:
        return 0.0
    keys = np.take_along_axis(ready.k, weights.argmax(axis=-1)[..., np.newaxis], axis=2)
    beside = ready.sinks[:, np.newaxis] - (ready.q * keys).sum(axis=-1) * ready.scale
    return np.asarray(weights.max(axis=-1) * np.exp(beside))
