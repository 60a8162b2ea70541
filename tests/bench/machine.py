"""The machine that is measured on: its processors, NumPy and its BLAS, and PyTorch where installed."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from attn_cli.core.threads import processors


class Machine(NamedTuple):
    """The machine that was measured on."""

    processor: str | None
    processors: int
    system: str
    python: str
    numpy: str
    blas: str
    torch: str | None  # None where it is not installed
    torch_large_pages: bool  # whether it asks for large pages of memory, as NumPy does


def machine() -> Machine:
    """Return the machine of this run."""
    torch, name = pytorch(), platform.processor()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    config: Any = np.show_config(mode="dicts") or {}
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return Machine(
        processor=name or None,
        processors=processors(),
        system=f"{platform.system()} {platform.machine()}".strip() or "unknown",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=" ".join(filter(None, [blas.get("name"), blas.get("version")])) or "unknown",
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
