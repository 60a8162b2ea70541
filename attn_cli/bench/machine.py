"""What the figures are measured on: processors, NumPy and its BLAS, PyTorch if it is there."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from attn_cli.bench.records import Machine
from attn_cli.core.threads import processors
from attn_cli.core.tiles import quickest


def machine() -> Machine:
    """Return what the figures of this run are measured on."""
    torch = pytorch()
    return Machine(
        processor=_processor(),
        processors=processors(),
        system=f"{platform.system()} {platform.machine()}".strip() or "unknown",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=_blas(),
        exponential=quickest(4).of.__name__,
        torch=None if torch is None else str(torch.__version__),
        torch_large_pages=torch is not None and os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
    )


def pytorch() -> Any:
    """Return the module torch, or None where it is not installed, or broken."""
    try:
        import torch  # a second or two: nobody but the benchmark pays for it
    except (ImportError, OSError):
        return None
    return torch


@contextmanager
def pytorch_at_its_best(threads: int) -> Iterator[None]:
    """Let PyTorch keep nothing for gradients, and work with so many threads; without it, do nothing."""
    torch = pytorch()
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def _processor() -> str | None:
    """Return the name of the processor, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            name = next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
            )
    except OSError:
        name = platform.processor()
    return name or None


def _blas() -> str:
    """Return the name and the version of what multiplies NumPy's matrices, as NumPy was built."""
    told: Any = np.show_config(mode="dicts")
    blas = (told or {}).get("Build Dependencies", {}).get("blas", {})
    return " ".join(filter(None, [blas.get("name"), blas.get("version")])) or "unknown"
