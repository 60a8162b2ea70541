"""A pretrained model whose files are open, and its tokenizer: in a folder, or in the local Hugging Face cache."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from attn_cli.errors import FileError, InputError, shell_quote, visible
from attn_cli.io.files import read_bytes
from attn_cli.models.checkpoints.gguf import is_gguf
from attn_cli.models.checkpoints.gguf_tokenizer import gguf_tokenizer
from attn_cli.models.checkpoints.run import Checkpoint
from attn_cli.models.checkpoints.tokenizer import TextEncoder

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
LONGEST = 96  # of a name on the Hugging Face Hub
OLLAMA, LARGEST_MANIFEST = "ollama:", 1 << 20
OLLAMA_MODEL = "application/vnd.ollama.image.model"
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
REVISION = re.compile(r"[0-9a-f]{40}")


class OpenModel(NamedTuple):
    """A pretrained model whose files are open, and its tokenizer."""

    name: str  # as notes show it: of a folder, its last part
    checkpoint: Checkpoint
    encoder: TextEncoder


@contextmanager
def open_model(model: str) -> Iterator[OpenModel]:
    """Open the model in a folder, or in the local Hugging Face cache."""
    folder = find_folder(model)
    with Checkpoint(folder) as checkpoint:
        name = os.path.basename(os.path.abspath(folder)) if folder == model else model
        file = None if checkpoint.gguf is None else gguf_tokenizer(checkpoint.gguf)
        yield OpenModel(visible(name), checkpoint, TextEncoder(folder, checkpoint.model.family, file))


def find_folder(model: str) -> str:
    """Return the folder of a checkpoint: the one that `model` is, else the one of that name in the cache.

    Raises FileError if it can be neither, InputError if the cache does not have it.
    """
    if model.startswith(OLLAMA):
        return _ollama_file(model.removeprefix(OLLAMA))
    if os.path.isdir(model) or is_gguf(model):
        return model
    shown = visible(model)[:200]
    if os.path.isfile(model) and os.path.exists(os.path.join(os.path.dirname(model), "config.json")):
        said = f"{shown!r} is a file of a model."
        raise FileError(said, f"Give its folder: {shell_quote(os.path.dirname(model) or '.')}.")
    if os.path.isfile(model):
        said = f"{shown!r} is a file, and no GGUF file."
        raise InputError(said, "Give the folder of a checkpoint, or a GGUF file.")
    if not NAME.fullmatch(model) or len(model) > LONGEST or "--" in model or ".." in model:
        hint = "Give the folder of a checkpoint, or a name such as google-bert/bert-base-uncased."
        raise FileError(f"{shown!r} is neither a folder nor the name of a model.", hint)
    cache = cache_folder()
    if (found := _snapshot(os.path.join(cache, "models--" + model.replace("/", "--")))) is not None:
        return found
    said = f"{shown} is not a folder, and not in the local Hugging Face cache ({visible(cache)})."
    raise InputError(said, f"attn downloads no models: get it with `hf download {model}`, or give a folder.")


def cache_folder() -> str:
    """Return where Hugging Face's libraries keep what they have downloaded, as the environment says."""
    set_ = os.environ.get
    home = set_("HF_HOME") or os.path.join(set_("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    own = set_("HF_HUB_CACHE") or set_("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return os.path.expanduser(own)


def _ollama_file(name: str) -> str:
    """Return the file of a model that Ollama keeps on this machine; raise InputError if it keeps none of this name."""
    kept = os.environ.get("OLLAMA_MODELS") or os.path.join(os.path.expanduser("~"), ".ollama", "models")
    called, _, tag = name.partition(":")
    shown = visible(name)[:200]
    if not NAME.fullmatch(called) or not re.fullmatch(r"[\w.-]*", tag, re.ASCII) or ".." in name:
        raise FileError(f"{shown!r} is not the name of a model.", f"Give a name such as {OLLAMA}llama3.2:1b.")
    owner = called if "/" in called else f"library/{called}"
    manifest = os.path.join(kept, "manifests", "registry.ollama.ai", *owner.split("/"), tag or "latest")
    try:
        layers = json.loads(read_bytes(manifest, LARGEST_MANIFEST))["layers"]
        digest = next(one["digest"] for one in layers if one["mediaType"] == OLLAMA_MODEL)
        blob = os.path.join(kept, "blobs", DIGEST.fullmatch(digest).expand(r"sha256-\1"))  # type: ignore[union-attr]
    except (FileError, ValueError, RecursionError, LookupError, TypeError, AttributeError, StopIteration):
        said = f"Ollama keeps no model {shown} in {visible(kept)}."
        hint = f"get it with `ollama pull {shown}`; `ollama list` shows what there is."
        raise InputError(said, f"attn downloads no models: {hint}") from None
    return blob


def _snapshot(kept: str) -> str | None:
    """Return the snapshot that refs/main names, else the only one; None if there is none."""
    snapshots = os.path.join(kept, "snapshots")
    try:
        revision = read_bytes(os.path.join(kept, "refs", "main"), 1000).decode("ascii", "replace").strip()
    except FileError:
        try:
            revisions = os.listdir(snapshots)
        except OSError:
            return None
        revision = revisions[0] if len(revisions) == 1 else ""
    folder = os.path.join(snapshots, revision)
    return folder if REVISION.fullmatch(revision) and os.path.isdir(folder) else None
