"""The worked example of a dictionary: the three lookups of its text, and whether its claim holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from attn_cli.inputs.key_value_pairs import dictionary
from attn_cli.teach.soft_dictionary import Lookup, look_up

if TYPE_CHECKING:
    from attn_cli.settings.settings import Settings
    from attn_cli.teach.examples import Acts
    from attn_cli.trace.trace import Trace


class DictionaryExample(NamedTuple):
    """The three lookups: a key as written, the nearest key, and a share of every value."""

    exact: Lookup
    near: Lookup
    soft: Lookup
    claim: str  # what the text expects, and what came out

    @property
    def trace(self) -> Trace:
        """The trace of the last lookup, with the claim among its notes."""
        return replace(self.soft.trace, kind="example", notes=(*self.soft.trace.notes, self.claim))

    def to_dict(self, steps: bool = False) -> dict[str, object]:
        """Return the JSON: the trace of the last lookup, and all three records as `acts`."""
        acts = [act.to_dict(steps) for act in (self.exact, self.near, self.soft)]
        record = self.trace.to_dict(steps)
        notes = record.pop("notes")
        return record | {"acts": acts, "notes": notes}


def dictionary_example(acts: Acts, settings: Settings) -> DictionaryExample:
    """Return the worked example; its last keys have no values, so each is its own value."""
    pairs = dictionary(acts.pairs.items())
    itself = dictionary((key, key) for key in acts.keys)
    # -q names a row of the last lookup only.
    exact, near = (look_up(query, pairs, replace(settings, query=None)) for query in acts.queries)
    soft = look_up(acts.query, itself, settings)
    return DictionaryExample(exact, near, soft, _claim(soft, acts.least))


def _claim(found: Lookup, least: str) -> str:
    """Return a sentence on whether the key gets the least that the text expects to."""
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
