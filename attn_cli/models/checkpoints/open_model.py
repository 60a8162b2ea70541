"""A pretrained model whose files are open, and its tokenizer: in a folder, or in the local Hugging Face cache.

Text becomes token ids through the tokenizers package (the extra `models`). A tokenizer.json is a stranger's file, and
the library does what it asks for: a character map of four bytes takes 8 GB, a vocabulary of one long piece ends the
process, and while an expression is matched no signal is handled. So the library works in a separate process, within
limits of time and memory. Each process of attn has one at most, which has one tokenizer at a time.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from attn_cli.errors import FileError, InputError, MissingExtra, refuse_input, shell_quote, visible
from attn_cli.io import files, signals
from attn_cli.models.checkpoints import gguf, gguf_tokenizer, run

SECONDS, MEMORY = 30, 4 << 30  # for each question
MAX_TOKENIZER_BYTES = 1 << 26
LARGEST_LIST, MOST_WORDS = 1 << 24, 1 << 20  # of vocab.txt and its like: LaBSE has 501,153 words in 5 MB
OWN, WORDPIECE, BPE = "tokenizer.json", "vocab.txt", ("vocab.json", "merges.txt")
SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm")
MASKS = ("[MASK]", "<mask>")
UNKNOWN = ("[UNK]", "<unk>")
FRAMED = ("roberta", "xlm-roberta", "camembert", "bart")  # <s> text </s>
MISSING = "A model's tokenizer needs tokenizers: pip install 'attn-cli[models]'"
HINT = "Compare it with the file of the model's publisher."


class Encoded(NamedTuple):
    """A text's tokens, as the vocabulary spells them, and their ids."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]  # which of them frame the text
    types: tuple[int, ...]  # segments: 0; 1 for the second text where the model tells them apart
    unknown: tuple[tuple[str, str], ...] = ()  # what the vocabulary lacks, and the token in its place
    second: int | None = None  # the place where the second text begins


class TextEncoder:
    """A checkpoint's tokenizer: of the folder's files, or of a `file` as tokenizer.json would be."""

    def __init__(self, folder: str, family: str, file: bytes | None = None) -> None:
        _place()  # before a file is read
        self.name = visible(folder)
        try:
            self._file = _read(folder, family) if file is None else file
        except (ValueError, RecursionError) as error:
            raise self._unsound(str(error)) from None
        self._spelled: dict[int, str] = {}
        self.token(0)  # the separate process reads the file now

    def encode(self, text: str, second: str | None = None) -> Encoded:
        """Return the tokens of a text, framed as the model expects it; `second` follows it in the same sequence."""
        found = self._ask("cannot encode the text", "encode", text=text, second=second)
        ids, tokens, special, offsets, types, texts = map(tuple, found)
        said = f"The tokenizer of {self.name} finds no tokens in the text."
        refuse_input(not ids, said, "Give other words.")
        if not len(ids) == len(tokens) == len(offsets):  # a template's, whose lists differ
            said = f"The tokenizer of {self.name} gives {len(ids):,} ids and {len(tokens):,} tokens."
            raise InputError(said, HINT)
        unknown = {
            word: token
            for token, (start, stop), which in zip(tokens, offsets, texts, strict=True)
            if token in UNKNOWN and (word := (text, second or "")[which][start:stop]) != token
        }
        begins = texts.index(1) if 1 in texts else None
        return Encoded(ids, tokens, tuple(map(bool, special)), types, tuple(unknown.items()), begins)

    def token(self, id_: int) -> str:
        """Return how the vocabulary spells a token."""
        if id_ not in self._spelled:
            found = self._ask("cannot spell a token", "id_to_token", of=id_)
            self._spelled[id_] = f"<{id_}>" if found is None else str(found)
        return self._spelled[id_]

    def text(self, *ids: int) -> str:
        """Return tokens as text: a space in front starts a new word; ## of a word piece stays."""
        spelled = self.token(ids[0])
        decoded = str(self._ask("cannot spell a token", "decode", ids=ids))
        if len(ids) == 1 and (not decoded or "\ufffd" in decoded):  # a part of a character, or no token
            return spelled
        return " " + decoded.lstrip(" ") if spelled.startswith("▁") else decoded

    def mask(self) -> tuple[str, int] | tuple[None, None]:
        """Return the token that stands for a word to be guessed, and its id; nothing where there is none."""
        ids = {name: self.id(name) for name in MASKS}
        return next(((name, id_) for name, id_ in ids.items() if id_ is not None), (None, None))

    def id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it; None where it has none of that name."""
        found = self._ask("cannot spell a token", "token_to_id", of=token)
        return None if found is None else int(found)

    def _ask(self, what: str, do: str, **more: object) -> Any:
        """Return the library's answer; its errors, its panics and its death become an InputError."""
        library = _libraries.get(os.getpid()) or _libraries.setdefault(os.getpid(), _Library())
        try:
            answer = library.ask(self._file, {"do": do, **more})
        except signals.DiedError as error:
            most = f"{SECONDS} seconds" if error.is_late else f"{MEMORY >> 30} GB of memory, or crashed"
            hint = "Compare its tokenizer.json with that of the model's publisher, or give a shorter text."
            raise InputError(f"The tokenizer of {self.name} took more than {most}.", hint) from None
        if "missing" in answer:
            raise MissingExtra(MISSING)
        if "unsound" in answer:
            raise self._unsound(answer["unsound"])
        if "why" in answer:
            raise InputError(f"The tokenizer of {self.name} {what}: {visible(answer['why'])[:200]}.", HINT)
        return answer["found"]

    def _unsound(self, why: str) -> InputError:
        said = f"The tokenizer of {self.name} is not a sound tokenizer: {visible(why)[:200]}."
        return InputError(said, HINT)


class _Library:
    """The separate process, which starts with the first question, and anew after its death."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: signals.SeparateProcess | None = None
        self.file: bytes | None = None  # what it has read

    def ask(self, file: bytes, question: dict[str, Any]) -> Any:
        """Return the answer of the tokenizer that a file makes, to a thread at a time."""
        with self.lock:
            if self.process is None or not self.process.is_running():
                self.end()
                child = os.path.join(os.path.dirname(__file__), "tokenizer_child.py")
                self.process = signals.SeparateProcess(child, [_place(), str(MEMORY), str(SECONDS)], SECONDS)
            if self.file != file:
                self.file = None
                answer = self.process.ask({"size": len(file)}, file)
                if "found" not in answer:
                    return answer
                self.file = file
            return self.process.ask(question)

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.end()
        self.process = self.file = None


_libraries: dict[int, _Library] = {}  # by process id: a fork does not share its parent's


def _place() -> str:
    """Return the folder from which the separate process imports tokenizers; raise MissingExtra without the package."""
    found = find_spec("tokenizers")
    if found is None or found.origin is None:  # a mere folder of that name is no package
        raise MissingExtra(MISSING)
    return os.path.dirname(os.path.dirname(found.origin))


def _read(folder: str, family: str) -> bytes:
    """Return what the separate process makes a folder's tokenizer of, JSON: tokenizer.json, or what stands for one.

    Vocabularies in files of their own become {"words", "lowercase"} (BERT's word pieces), or {"words", "merges",
    "family"} (GPT-2's pairs of bytes, framed where the family frames its texts).
    """

    def has(*names: str) -> bool:
        return all(os.path.exists(os.path.join(folder, name)) for name in names)

    if has(OWN):
        return files.read_bytes(os.path.join(folder, OWN), MAX_TOKENIZER_BYTES)
    if has(WORDPIECE):
        numbered = enumerate(_text(folder, WORDPIECE).split("\n"))
        words = {line.rstrip("\r"): n for n, line in numbered if line.strip()}
        settings = os.path.join(folder, "tokenizer_config.json")
        config = json.loads(files.read_bytes(settings, 1 << 22)) if os.path.exists(settings) else None
        # as BERT's are where they say nothing
        is_lower = not isinstance(config, dict) or config.get("do_lower_case", True) is not False
        return json.dumps({"words": words, "lowercase": is_lower}).encode()
    if not has(*BPE):
        raise _no_tokenizer(folder)
    words = json.loads(_text(folder, BPE[0]))
    if not isinstance(words, dict) or not all(type(n) is int and 0 <= n < 1 << 32 for n in words.values()):
        raise InputError(f"{visible(os.path.join(folder, BPE[0]))} is not a vocabulary: names with numbers.")
    lines = [line for line in _text(folder, BPE[1]).splitlines() if line and not line.startswith("#version")]
    framed = "roberta" if family in FRAMED else family
    return json.dumps({"words": words, "merges": lines, "family": framed}).encode()


def _text(folder: str, name: str) -> str:
    """Return a vocabulary, or merges, with so many words at most; what comes of a word takes twenty times its bytes."""
    path = os.path.join(folder, name)
    data = files.read_bytes(path, LARGEST_LIST)
    if max(data.count(b"\n"), data.count(b",")) > MOST_WORDS:
        raise InputError(f"{visible(path)} has more than {MOST_WORDS:,} words.", "Is it the model's own?")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{visible(path)} is not UTF-8 text.") from None


def _no_tokenizer(folder: str) -> FileError:
    name = visible(folder)
    found = next((file for file in SENTENCEPIECE if os.path.exists(os.path.join(folder, file))), None)
    if found is None:
        why = f"{name} has no {OWN}, no {WORDPIECE}, and no {BPE[0]} with {BPE[1]}."
        return FileError(why, "Copy the tokenizer's files into the folder.")
    convert = "from transformers import AutoTokenizer as T; T.from_pretrained('.').save_pretrained('.')"
    target, hint = "", f'Convert it there: python -c "{convert}"'
    if found == "source.spm":
        target = " and target.spm"
        hint = "Encode the texts with the transformers library, and give their token ids."
    return FileError(f"{name} has its tokenizer in {found}{target}, which attn does not read.", hint)


NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
LONGEST = 96  # of a name on the Hugging Face Hub
OLLAMA, LARGEST_MANIFEST = "ollama:", 1 << 20
OLLAMA_MODEL = "application/vnd.ollama.image.model"
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
REVISION = re.compile(r"[0-9a-f]{40}")


class OpenModel(NamedTuple):
    """A pretrained model whose files are open, and its tokenizer."""

    name: str  # as notes show it: of a folder, its last part
    checkpoint: run.Checkpoint
    encoder: TextEncoder


@contextmanager
def open_model(model: str) -> Iterator[OpenModel]:
    """Open the model in a folder, or in the local Hugging Face cache."""
    folder = find_folder(model)
    with run.Checkpoint(folder) as checkpoint:
        name = os.path.basename(os.path.abspath(folder)) if folder == model else model
        file = None if checkpoint.gguf is None else gguf_tokenizer.gguf_tokenizer(checkpoint.gguf)
        yield OpenModel(visible(name), checkpoint, TextEncoder(folder, checkpoint.model.family, file))


def find_folder(model: str) -> str:
    """Return the folder of a checkpoint: the one that `model` is, else the one of that name in the cache.

    Raises FileError if it can be neither, InputError if the cache does not have it.
    """
    if model.startswith(OLLAMA):
        return _ollama_file(model.removeprefix(OLLAMA))
    if os.path.isdir(model) or gguf.is_gguf(model):
        return model
    shown = visible(model)[:200]
    if os.path.isfile(model) and os.path.exists(os.path.join(os.path.dirname(model), "config.json")):
        said = f"{shown!r} is a file of a model."
        raise FileError(said, f"Give its folder: {shell_quote(os.path.dirname(model) or '.')}.")
    said = f"{shown!r} is a file, and no GGUF file."
    refuse_input(os.path.isfile(model), said, "Give the folder of a checkpoint, or a GGUF file.")
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
        layers = json.loads(files.read_bytes(manifest, LARGEST_MANIFEST))["layers"]
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
        revision = (
            files.read_bytes(os.path.join(kept, "refs", "main"), 1000).decode("ascii", "replace").strip()
        )
    except FileError:
        try:
            revisions = os.listdir(snapshots)
        except OSError:
            return None
        revision = revisions[0] if len(revisions) == 1 else ""
    folder = os.path.join(snapshots, revision)
    return folder if REVISION.fullmatch(revision) and os.path.isdir(folder) else None
