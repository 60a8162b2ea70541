"""The worked example of a dictionary, told as its text tells it: three lookups, and whether it foresees the last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.inputs.key_value_pairs import dictionary
from attn_cli.teach.soft_dictionary import Lookup, look_up

if TYPE_CHECKING:
    from attn_cli.settings.settings import Settings
    from attn_cli.teach.examples import Acts
    from attn_cli.trace.trace import Trace


class Told(NamedTuple):
    """The worked example: a key as written, a key by likeness, and a query that takes a share of every value."""

    exact: Lookup
    near: Lookup
    soft: Lookup
    claim: str  # what its text expects, and what came out

    @property
    def trace(self) -> Trace:
        """The last act's trace, which is the one to go on with; its notes say what came out."""
        return replace(self.soft.trace, kind="example", notes=(*self.soft.trace.notes, self.claim))

    def to_dict(self, steps: bool = False) -> dict[str, object]:
        """Return the JSON: the trace of the last act, and all three records as `acts`."""
        acts = [act.to_dict(steps) for act in (self.exact, self.near, self.soft)]
        record = self.trace.to_dict(steps)
        notes = record.pop("notes")
        return record | {"acts": acts, "notes": notes}


def told(acts: Acts, settings: Settings) -> Told:
    """Tell the worked example; its last keys have no values, so each stands for itself."""
    pairs = dictionary(acts.pairs.items())
    itself = dictionary((key, key) for key in acts.keys)
    # -q names a row of the last act alone.
    exact, near = (look_up(query, pairs, replace(settings, query=None)) for query in acts.queries)
    soft = look_up(acts.query, itself, settings)
    return Told(exact, near, soft, _claim(soft, acts.least))


def _claim(found: Lookup, least: str) -> str:
    """Say whether the key that a text expects to get the least does so."""
    trace = found.trace
    places = {key: j for j, key in enumerate(trace.key_tokens) if trace.mask is None or trace.mask[0, j]}
    expected = f"The text expects {least!r} to get the least"
    if least not in places:
        why = "the mask hides it" if least in trace.key_tokens else "it has no vector, and was skipped"
        return f"{expected}; here {why}."
    weights = {key: found.weights[j] for key, j in places.items()}
    last = min(weights, key=lambda key: weights[key])
    if weights[least] <= weights[last]:
        return f"{expected}, and it does: {weights[least]:.3f}."
    return (
        f"{expected}. With these vectors {last!r} does, with {weights[last]:.3f}; "
        f"{least!r} gets {weights[least]:.3f}."
    )
