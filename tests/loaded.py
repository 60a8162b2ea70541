"""Loaded as soon as it is imported: what runs of attn need, and its commands made, so that a fork has them."""

import contextlib
import gc
import importlib
import os
from functools import cache
from pathlib import Path

from attn_cli.cli import app, options

PACKAGE = Path(__file__).parents[1] / "attn_cli"
FIGURES = ("figure", "collections", "backends.backend_agg", "backends.backend_pdf", "backends.backend_svg")

os.environ["OPENBLAS_NUM_THREADS"] = "1"
files = (path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
modules = [".".join(file.parts) for file in files if file.name not in ("__init__", "__main__")]
for name in ("numpy", "typer.main", "rich.console", *modules, *(f"matplotlib.{one}" for one in FIGURES)):
    with contextlib.suppress(ImportError):  # of what a command without Textual or Matplotlib has no need
        importlib.import_module(name)

options.single_command = cache(options.single_command)
for name, (module, function) in app.COMMANDS.items():
    entries = function if isinstance(function, dict) else {name: (module, function)}
    for verb, (where, what) in entries.items():
        options.single_command(verb, getattr(importlib.import_module(where), what))
gc.freeze()
