"""The worked examples: the inputs of the tutorials that the project grew from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.io.files import data_path
from attn_cli.io.types import NamedTuple, dataclass, replace
from attn_cli.settings import Settings

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given

EXAMPLES = ("day1", "coffee", "coffee-notebook", "manchester", "a2", "dictionary")


class Acts(NamedTuple):
    """A dictionary and its queries, then one more query with keys that have no values."""

    pairs: dict[str, str]
    queries: tuple[str, str]
    query: str
    keys: tuple[str, ...]
    least: str  # the key that gets the least, as the text expects


@dataclass(frozen=True, eq=False)
class Example:
    """One example: given matrices, or a text with its settings, or a dictionary."""

    about: str
    given: Given | None
    text: str
    defaults: dict[str, str | int]
    acts: Acts | None = None

    def with_defaults(self, settings: Settings) -> Settings:
        """Return the settings with the example's own wherever none was chosen."""
        own = {name: value for name, value in self.defaults.items() if getattr(settings, name) is None}
        return replace(settings, **own)  # type: ignore[arg-type]


def load(name: str) -> Example:
    """Return the example of that name."""
    # The list of names, which attn compute loads too, needs neither JSON nor NumPy.
    import json

    from attn_cli.inputs.matrices import given_from

    record = json.loads(data_path(f"examples/{name}.json").read_text(encoding="utf-8"))
    about, text = record.pop("about"), record.pop("text", "")
    if "pairs" in record:
        more = record["second"]
        queries = tuple(record["queries"])
        acts = Acts(record["pairs"], queries, more["query"], tuple(more["keys"]), record["least"])
        return Example(about, None, "", {}, acts)
    return Example(about, None, text, record) if text else Example(about, given_from(record, name), "", {})
