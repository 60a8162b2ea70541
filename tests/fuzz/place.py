"""Where a crash happened: what tells one kind from another."""

import traceback
from pathlib import Path


def place(error: BaseException) -> str:
    """Return attn's last line on the way to an error, or what it was that does not hold."""
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__name__ == "Broken":
        return f"{frames[-1].name}: {str(error)[:40]}"
    ours = [frame for frame in frames if "attn_cli" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {type(error).__name__}"
