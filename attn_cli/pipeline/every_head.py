"""All layers' heads, from a text and a model's folder or from a file of weights: what each of them does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from attn_cli.errors import UsageError, refuse, refuse_input, shell_quote, visible
from attn_cli.inputs.saved_weights import Saved
from attn_cli.io.types import Array, Bools, NamedTuple, OnPart, replace
from attn_cli.models import encoder, model_file
from attn_cli.models.checkpoints.open_model import open_model
from attn_cli.pipeline import as_options, embed, ready_weights
from attn_cli.pipeline.mask import MASK_HINT, stated_mask
from attn_cli.pipeline.record import record as recorded
from attn_cli.pipeline.sources.checkpoint import Reading, read_texts
from attn_cli.pipeline.sources.text import layers_of_text
from attn_cli.settings import ALL, PIECES, ROLLOUT, Settings, check_shaping, settings_for_masked
from attn_cli.trace import LARGE, Learned, Trace, head_roles

ROLES = model_file.BUNDLED[0]
MapSize = Callable[[int, int, int], tuple[int, int]]  # of heads, queries and keys: blocks down and across


class WeightsOrigin(NamedTuple):
    """Where weights come from, and over which tokens; `text` has None where nobody knows the tokens."""

    name: str
    kind: str  # self, masked or cross
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    text: head_roles.Text
    given: str  # how a command names them: TEXT -p language
    second: int | None = None  # the place where the second text of a pair begins


class LayerWeights(NamedTuple):
    """One layer's heads: weights (h, n_q, n_k), and what they may look at (n_q, n_k); None for everything."""

    source: WeightsOrigin
    number: int
    heads: tuple[str, ...]
    weights: Array
    allowed: Bools | None
    notes: tuple[str, ...] = ()
    learned: tuple[Learned | None, ...] = ()  # of each head, what it does on any text, where that is known

    @property
    def mask(self) -> Bools:
        """What may be looked at (n_q, n_k)."""
        return np.ones(self.weights.shape[1:], np.bool_) if self.allowed is None else self.allowed


class LayerRoles(NamedTuple):
    """What each head of a layer does; `maps` (h, rows, columns) are means of blocks of weights, NaN where masked."""

    number: int
    heads: tuple[str, ...]
    roles: tuple[head_roles.Role, ...]
    patterns: dict[str, head_roles.Pattern]
    maps: Array
    learned: tuple[Learned | None, ...]

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        patterns = {n: {"rows": int(one.rows.sum()), "even": one.even} for n, one in self.patterns.items()}
        heads = [
            {"head": head, "name": one.name, "share": one.share, "entropy": one.entropy, "shares": one.shares}
            for head, one in zip(self.heads, self.roles, strict=True)
        ]
        return {"layer": self.number, "patterns": patterns, "heads": heads}


class EveryHead(NamedTuple):
    """What all heads do on one text."""

    source: WeightsOrigin
    layers: tuple[LayerRoles, ...]
    rollout: Array | None  # (n, n), over the layers up to the last of `layers`
    notes: tuple[str, ...]

    def record(self) -> dict[str, object]:
        """Return it as JSON has it."""
        source, rules = self.source, head_roles
        rule = {"least": rules.MIN_GAIN, "lead": rules.LEAD, "fewest_rows": rules.MIN_ROWS}
        clearest = [
            {"layer": layer, "head": head, "name": role.name, "share": role.share}
            for layer, head, role in named_heads(self)
        ]
        return {
            "schema": "attn/1", "kind": "heads", "source": source.name, "attention": source.kind,
            "query_tokens": source.query_tokens, "key_tokens": source.key_tokens,
            "rule": rule | {"even": rules.MIN_UNIFORM_OVERLAP}, "layers": [one.record() for one in self.layers],
            "clearest": clearest,
            "rollout": None if self.rollout is None else self.rollout.tolist(),
            "notes": [*self.notes, *(_known(*one) for one in learned_heads(self))],
        }  # fmt: skip


def measure_heads(
    found: Iterator[LayerWeights], size: MapSize, settings: Settings, layer: int | None, with_rollout: bool
) -> EveryHead:
    """Return what each head of the layers does, or of `layer` alone; the rollout goes over all layers up to it.

    Word pieces are joined, and special tokens hidden, as the settings say; the rollout goes through the pieces.
    """
    check_shaping(settings)
    if with_rollout:
        ready_weights.check_rollout(replace(settings, head=ROLLOUT, without=()))
    kept, notes, rollout, rolled = [], dict[str, None](), None, None
    for one in up_to(layer, found):
        if with_rollout:
            ready_weights.check_one_text(one.source.text.is_one, one.source.name, "--rollout")
            rollout = head_roles.rolled_out(rollout, one.weights)
            rolled = shaped(one._replace(weights=rollout[None]), settings).weights[0]
        if layer in (None, one.number):
            one = shaped(one, settings, layer is None)
            notes |= dict.fromkeys(one.notes)
            patterns = head_roles.find_patterns(one.source.text, one.mask)
            roles = tuple(head_roles.measure(head, one.mask, patterns) for head in one.weights)
            maps = head_roles.block_means(one.weights, one.mask, *size(*one.weights.shape))
            kept.append(LayerRoles(one.number, one.heads, roles, patterns, maps, one.learned))
    return EveryHead(one.source, tuple(kept), rolled, tuple(notes))


def up_to(layer: int | None, found: Iterator[LayerWeights]) -> Iterator[LayerWeights]:
    """Yield the layers up to this one, above which none is computed, or all for None.

    Raises UsageError at the end where there is no such layer.
    """
    numbers: list[int] = []
    for one in found:
        yield one
        if one.number == layer:
            return
        numbers.append(one.number)
    if layer is not None:
        first, last = numbers[0], numbers[-1]
        hint = f"Layers are {first} to {last}." if last > first else f"There is one, {last}."
        raise UsageError(f"There is no layer {layer}.", hint, "--layer")


def shaped(one: LayerWeights, settings: Settings, has_others: bool = False) -> LayerWeights:
    """Return a layer as --join-pieces and the like ask for; its notes hold for other layers too if it `has_others`."""
    source, between = one.source, settings.between
    if not ready_weights.joins_or_hides(settings):
        return one
    if source.text.queries is None:
        raise ready_weights.without_tokens(settings, source.name)
    sides, heads = (source.query_tokens, source.key_tokens), (one.heads, one.heads[0], one.heads)
    about = (*sides, *heads, one.weights, one.allowed, "", one.number)
    found = ready_weights.SelectedWeights(*about, second=source.second)
    found = ready_weights.pieces_joined_or_hidden(found, settings)
    queries, keys = found.query_tokens, found.key_tokens
    options = [f"--{name.replace('_', '-')}" for name in PIECES if getattr(settings, name)]
    given = " ".join((source.given, *options, *[f"--between {between}"] * (between != ALL)))
    text = head_roles.Text(queries, keys, source.text.is_one and between not in ("a-b", "b-a"))
    notes = (ready_weights.SHARE_HIDDEN.sub("", note) if has_others else note for note in found.notes)
    source = source._replace(query_tokens=queries, key_tokens=keys, text=text, given=given)
    one = one._replace(source=source, weights=found.weights, allowed=found.allowed)
    return one._replace(notes=(*one.notes, *notes))


LayersOf = Callable[[str, str, str | None], Iterator[LayerWeights]]  # of a kind, a text and a context


@contextmanager
def open_layers(
    settings: Settings, report: OnPart | None = None, last: int | None = None
) -> Iterator[LayersOf]:
    """Open the model on disk, else the learned one, that the settings name, once for many texts.

    What it gives yields each layer over a text, of a kind: self, masked or cross. A model with an encoder and a decoder
    reads the context with its encoder, and the text with its decoder; its self is the encoder's, of the text alone. The
    `report` is of the layers of a model on disk up to `last`, or of all.
    """
    if settings.model is None:
        shared = open_stack(settings)
        yield lambda kind, text, context: stack_layers(kind, text, context, settings, shared)
        return
    with open_model(settings.model) as opened:

        def layers_of(kind: str, text: str, context: str | None) -> Iterator[LayerWeights]:
            reading = read_texts(kind, text, context, settings, opened)
            if report is not None:
                reading.run.report_to(report, last)
            return read_layers(reading, settings)

        yield layers_of


def layers_over(
    kind: str, text: str, context: str | None, settings: Settings, report: OnPart, last: int | None
) -> Iterator[LayerWeights]:
    """Yield each layer over one text, as `open_layers` has it."""
    with open_layers(settings, report, last) as layers_of:
        yield from layers_of(kind, text, context)


def read_layers(reading: Reading, settings: Settings) -> Iterator[LayerWeights]:
    """Yield each layer of a model that reads a text."""
    name, sides = reading.model.name, (reading.query.tokens, reading.key.tokens)
    of, pair = head_roles.Text(*sides, reading.asked != "cross"), " --pair TEXT" * (settings.pair is not None)
    given = f"TEXT -m DIR{pair}{as_options(settings)}"
    source = WeightsOrigin(name, reading.asked, *sides, of, given, reading.query.second)
    for steps in reading.layers():
        weights, allowed, notes = reading.weights(steps, settings)
        said = f"{name}: the weights of layer {steps.layer} are not numbers."
        refuse_input(not np.isfinite(weights).all(), said, "Is the file whole?")
        yield LayerWeights(source, steps.layer, (*map(str, range(len(weights))),), weights, allowed, notes)


def saved_layers(saved: Saved) -> Iterator[LayerWeights]:
    """Yield each layer of a file of weights, checked, with its mask as the file or its zeros say."""
    n_q, n_k = saved.weights.shape[-2:]
    is_one = n_q == n_k and ready_weights.is_one_text(saved)
    text = head_roles.Text(saved.query_tokens, saved.key_tokens, is_one)
    mask = stated_mask(Settings(), saved.mask, n_q, n_k, saved.name)
    for number in range(len(saved.weights)):
        asked = Settings(layer=number, head=ALL)
        found = ready_weights.select_weights(saved, asked, mask, saved.mask is not None)
        looks_ahead = n_q > 1 if found.allowed is None else np.triu(found.allowed, 1).any()
        kind = "cross" if not is_one else "self" if looks_ahead else "masked"
        source = WeightsOrigin(saved.name, kind, found.query_tokens, found.key_tokens, text, "--weights FILE")
        of_file = number if len(saved.weights) > 1 else saved.layer or 0
        notes = tuple(note.replace(MASK_HINT, "") for note in found.notes)  # that option is not here
        yield LayerWeights(source, of_file, saved.heads, found.weights, found.allowed, notes)


def open_stack(settings: Settings) -> embed.Shared:
    """Open the learned model that the settings name, else roles; UsageError for a projection without heads."""
    settings = replace(settings, projection=settings.projection or ROLES)
    if model_file.load_model(settings) is None:
        said = f"{visible(str(settings.projection))} has no heads of its own."
        hint = "Give -p language, roles-deep or roles, or a file that attn learn wrote."
        raise UsageError(said, hint, "--projection")
    return embed.open_shared(settings)


def stack_layers(
    kind: str, text: str, context: str | None, settings: Settings, shared: embed.Shared
) -> Iterator[LayerWeights]:
    """Yield each layer of the learned model that the settings name, else of roles, over a text."""
    settings = replace(settings, projection=settings.projection or ROLES)
    stack = shared.stack
    assert stack is not None
    sizes = [len(stack.head_names(layer)) for layer in range(stack.layers)]
    if len(set(sizes)) > 1:
        said = f"The layers of {stack.name} have {min(sizes)} and {max(sizes)} heads: they do not fit on one map."
        hint = f"Try attn self TEXT -p {shell_quote(str(settings.projection))} --head all --layer 0."
        raise UsageError(said, hint, "--projection")
    if (context is not None) != (kind == "cross"):
        wanted, hint = "one text", "Leave out --context."
        if context is None:
            wanted, hint = "a second text", "Try: attn heads TEXT --context CONTEXT, without --kind."
        raise UsageError(f"For {kind} attention, {stack.name} takes {wanted}.", hint, "--kind")
    settings = settings_for_masked(settings) if kind == "masked" else settings
    settings = replace(settings, layer=ALL, head=ALL, next=0, full=True)
    for layer, one in enumerate(layers_of_text(kind, text, context, settings, shared=shared)):
        yield _of_trace(recorded(one), layer, stack, settings)


def _of_trace(trace: Trace, layer: int, stack: encoder.EncoderStack, settings: Settings) -> LayerWeights:
    sides = queries, keys = trace.query_tokens, trace.key_tokens
    said = f"{len(queries):,} x {len(keys):,} weights of every head are too many."
    refuse(len(queries) * len(keys) > LARGE, said, "Give a part of it.")
    kind = "masked" if trace.mask is not None and trace.kind == "self" else trace.kind
    given = "TEXT" if settings.projection == ROLES else f"TEXT -p {shell_quote(str(settings.projection))}"
    of = head_roles.Text(*sides, not trace.has_second_input)
    source = WeightsOrigin(stack.name, kind, *sides, of, given + as_options(trace.settings))
    weights = np.stack([head.weights for head in trace.heads])
    names = tuple(head.name for head in trace.heads)
    facts = (stack.learned(layer, name) for name in names)
    learned = tuple(one if one.about and one.accuracy is not None else None for one in facts)
    return LayerWeights(source, layer, names, weights, trace.mask, trace.notes, learned)


def _known(layer: int, head: str, facts: Learned) -> str:
    """Return what is known of a head on any text: what it was named for, and how often it does that."""
    how = "was taught to look" if facts.taught else "is named for looking"
    where = f" on held-out text, {visible(facts.scored_on.partition('.')[0])}" if facts.scored_on else ""
    has_baseline = facts.baseline is not None and facts.baseline < 1
    beside = f" (best fixed distance: {facts.baseline:.0%})" if has_baseline else ""
    named = f"Head {visible(head)} of layer {layer} {how} {facts.about}"
    return f"{named}: its strongest link is there in {facts.accuracy:.0%}{where}{beside}."


def named_heads(found: EveryHead) -> list[tuple[int, str, head_roles.Role]]:
    """Return the layer, the head and the role of each head that has a name, the clearest first, bags of words last."""
    named = [
        (layer.number, head, role)
        for layer in found.layers
        for head, role in zip(layer.heads, layer.roles, strict=True)
        if role.share is not None
    ]
    return sorted(named, key=lambda one: (one[2].name == head_roles.BAG, -(one[2].share or 0.0)))


def learned_heads(found: EveryHead) -> list[tuple[int, str, Learned]]:
    """Return the layer, the head and what is known of it on any text, of each head of which that is known."""
    return [
        (layer.number, head, facts)
        for layer in found.layers
        for head, facts in zip(layer.heads, layer.learned, strict=False)
        if facts is not None
    ]
