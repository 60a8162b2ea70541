"""A mask from a file: .npy, .npz, .safetensors, JSON or lines of text."""

from __future__ import annotations

from pathlib import Path

from attn_cli.errors import InputError
from attn_cli.inputs.matrices import json_of, read_record
from attn_cli.io.array_files import is_safetensors, read_npy
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes


def read_mask(path: str | Path) -> object:
    """Read a mask file: .npy, JSON (rows, or an object with `mask`), or lines of 0 and 1 (true, false)."""
    data = read_bytes(path)
    if data[:6] == b"\x93NUMPY":
        return read_npy(path)
    if data[:2] == b"PK" or is_safetensors(data):
        content: object = read_record(path)
    elif data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{"):
        content = json_of(data, visible(str(path)))
    else:
        return _mask_lines(data.decode("utf-8-sig", "replace"), visible(str(path)))
    if not isinstance(content, dict):
        return content
    if "mask" not in content:
        raise InputError(f"{visible(str(path))} holds no array named mask.")
    return content["mask"]


def _mask_lines(text: str, name: str) -> list[list[bool]]:
    meaning = {"0": False, "1": True, "false": False, "true": True, "f": False, "t": True}
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.replace(",", " ").replace(";", " ").lower().split()
        unknown = [cell for cell in cells if cell not in meaning]
        if unknown:
            raise InputError(f"{name}, line {number}: {visible(unknown[0][:40])!r} is neither 0 nor 1.")
        if cells:
            rows.append([meaning[cell] for cell in cells])
    return rows
