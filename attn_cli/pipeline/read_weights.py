"""The file of weights that --projection names, opened before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_cli.errors import UsageError
from attn_cli.io.escape import visible
from attn_cli.io.files import looks_like_file
from attn_cli.models.model_file import BUNDLED
from attn_cli.settings.settings import Settings

if TYPE_CHECKING:
    from attn_cli.inputs.matrices import Given


def read_weights(settings: Settings) -> Given | None:
    """Return the matrices in the file that --projection names; None where it names none."""
    name = settings.projection
    if name in (None, "identity", "random"):
        return None
    assert name is not None
    if not looks_like_file(name):
        raise UsageError(
            f"There is no projection {visible(name)!r}.",
            f"Projections are {', '.join(BUNDLED)}, identity, random, or a file (with a slash or a suffix "
            "such as .json).",
            option="--projection",
        )
    from attn_cli.inputs.matrices import read_given  # only those who give a file need it

    return read_given(name)
