"""The machine that is measured on: its processors, NumPy and its BLAS, and PyTorch where installed."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from attn_cli.core.threads import processors
from tests.bench.records import Machine


def machine() -> Machine:
    """Return the machine of this run."""
    torch = pytorch()
    return Machine(
        processor=_processor(),
        processors=processors(),
        system=f"{platform.system()} {platform.machine()}".strip() or "unknown",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=_blas(),
        torch=None if torch is None else str(torch.__version__),
        torch_large_pages=torch is not None and os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
    )


def pytorch() -> Any:
    """Return the module torch, or None where it is not installed, or broken."""
    try:
        import torch  # takes a second or two, which only the benchmark pays for
    except (ImportError, OSError):
        return None
    return torch


@contextmanager
def fastest_pytorch(threads: int) -> Iterator[None]:
    """Run PyTorch without gradients and with so many threads; do nothing where it is not installed."""
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
    """Return the name of the processor, where the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            name = next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
            )
    except OSError:
        name = platform.processor()
    return name or None


def _blas() -> str:
    """Return the name and the version of the BLAS that NumPy was built with."""
    config: Any = np.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    return " ".join(filter(None, [blas.get("name"), blas.get("version")])) or "unknown"
