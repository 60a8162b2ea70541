"""attn: see attention from a shell. The public names, imported when they are first used.

>>> from attn_cli import attend
>>> weights, output = attend([[1.0]], [[1.0], [1.0]], [[0.0], [10.0]])
>>> output.tolist()
[[5.0]]
"""

__version__ = "1.0.0"

TYPE_CHECKING = False  # what type checkers know to be true; the import of typing is saved
if TYPE_CHECKING:
    from typing import Any

    from attn_cli.core.attend import attend as attend, strongest_links as strongest_links
    from attn_cli.errors import AttnError as AttnError
    from attn_cli.pipeline.sources.text import (
        trace_cross as trace_cross,
        trace_masked as trace_masked,
        trace_self as trace_self,
    )
    from attn_cli.pipeline.sources.weights import show as show
    from attn_cli.render.figures import figure as figure
    from attn_cli.render.formats import formats as formats
    from attn_cli.render.notebook import notebook_html as notebook_html
    from attn_cli.settings import Settings as Settings
    from attn_cli.trace import Trace as Trace

_WHERE = {
    "attend": "core.attend",
    "AttnError": "errors",
    "figure": "render.figures",
    "formats": "render.formats",
    "Settings": "settings",
    "Trace": "trace",
    "notebook_html": "render.notebook",
    "show": "pipeline.sources.weights",
    "strongest_links": "core.attend",
    "trace_cross": "pipeline.sources.text",
    "trace_masked": "pipeline.sources.text",
    "trace_self": "pipeline.sources.text",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> "Any":
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(f"attn_cli.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'attn_cli' has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
