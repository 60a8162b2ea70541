"""Text to token ids with a checkpoint's own tokenizer, through the tokenizers package (the extra `models`)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_cli.errors import AttnError, FileError, InputError, MissingExtra
from attn_cli.io.escape import visible
from attn_cli.io.files import read_bytes
from attn_cli.models.checkpoints.tokenizer_bounds import HINT, examine, unbounded_model
from attn_cli.models.checkpoints.tokenizer_process import TokenizerProxy

if TYPE_CHECKING:
    from types import ModuleType

MAX_TOKENIZER_BYTES = 1 << 26
LARGEST_LIST, MOST_WORDS = 1 << 24, 1 << 20  # of vocab.txt and its like: LaBSE has 501,153 words in 5 MB
MOST_HERE = 1 << 23  # bytes that a tokenizer may make of a text in this process
OWN, WORDPIECE, BPE = "tokenizer.json", "vocab.txt", ("vocab.json", "merges.txt")
SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm")
MASKS = ("[MASK]", "<mask>")
UNKNOWN = ("[UNK]", "<unk>")
FRAMED = ("roberta", "xlm-roberta", "camembert", "bart")  # <s> text </s>


class Encoded(NamedTuple):
    """A text's tokens, as the vocabulary spells them, and their ids."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]  # which of them frame the text
    types: tuple[int, ...]  # 0 for the first text, 1 for the second
    unknown: tuple[tuple[str, str], ...] = ()  # what the vocabulary lacks, and the token in its place


class TextEncoder:
    """A checkpoint's tokenizer."""

    def __init__(self, folder: str, family: str) -> None:
        self.name = visible(folder)
        library = _library()
        unsound = "is not a sound tokenizer"
        self._tokenizer, self._growth = self._guarded(unsound, lambda: _load(library, folder, family))
        self._guarded(unsound, lambda: self.token(0), self._tokenizer)  # a separate process reads it now
        self._path = os.path.join(folder, OWN)

    def encode(self, text: str, second: str | None = None) -> Encoded:
        """Return the tokens of a text, framed as the model expects it; `second` follows it in the same sequence."""
        made = self._tokenizer
        if (len(text) + len(second or "")) * self._growth > MOST_HERE:
            made = self._guarded("is not a sound tokenizer", self._elsewhere)
        found = self._guarded("cannot encode the text", lambda: made.encode(text, second), made)
        if not found.ids:
            raise InputError("There are no tokens to attend to.", "Give at least one token.")
        if not len(found.ids) == len(found.tokens) == len(found.offsets):  # a template's, whose lists differ
            said = (
                f"The tokenizer of {self.name} gives {len(found.ids):,} ids and {len(found.tokens):,} tokens."
            )
            raise InputError(said, HINT)
        special = tuple(bool(one) for one in found.special_tokens_mask)
        unknown = {
            text[start:stop]: token
            for token, (start, stop) in zip(found.tokens, found.offsets, strict=True)
            if token in UNKNOWN and second is None and text[start:stop] != token
        }
        return Encoded(
            tuple(found.ids), tuple(found.tokens), special, tuple(found.type_ids), tuple(unknown.items())
        )

    def _elsewhere(self) -> TokenizerProxy:
        """Return the same tokenizer in a separate process."""
        examined = examine(read_bytes(self._path, MAX_TOKENIZER_BYTES), self.name)
        grown = f"a text that may become {self._growth:,} times as long"
        return TokenizerProxy(examined.data, self.name, grown)

    def token(self, id_: int) -> str:
        """Return how the vocabulary spells a token."""
        found = self._tokenizer.id_to_token(id_)
        return f"<{id_}>" if found is None else str(found)

    def text(self, id_: int) -> str:
        """Return a token as text: a space in front starts a new word; ## of a word piece stays."""
        spelled = self.token(id_)
        made = self._tokenizer
        decoded = str(
            self._guarded("cannot spell a token", lambda: made.decode([id_], skip_special_tokens=False), made)
        )
        if not decoded or "\ufffd" in decoded:  # a part of a character, or no token of the tokenizer's
            return spelled
        return " " + decoded.lstrip(" ") if spelled.startswith("▁") else decoded

    def mask(self) -> tuple[str, int] | tuple[None, None]:
        """Return the token that stands for a word to be guessed, and its id; nothing where there is none."""
        ids = {name: self._tokenizer.token_to_id(name) for name in MASKS}
        return next(((name, int(id_)) for name, id_ in ids.items() if id_ is not None), (None, None))

    def _guarded(self, what: str, work: Callable[[], Any], made: Any = None) -> Any:
        """Return what `work` does; the library's errors, and its panics, become an InputError."""
        try:
            with nullcontext() if isinstance(made, TokenizerProxy) else _silent_panics():
                return work()
        except (AttnError, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a panic of the library's Rust code is not a Exception
            why = visible(str(error))[:200]
            raise InputError(f"The tokenizer of {self.name} {what}: {why}.", HINT) from None


@contextmanager
def _silent_panics() -> Iterator[None]:
    """Keep what the library's Rust code writes to standard error when it panics off the screen.

    It writes past Python, to descriptor 2; the error that follows says the same in one line.
    """
    with _SILENCE:
        kept = nowhere = None
        with suppress(OSError):  # where there is no standard error, or no descriptor left, panics are shown
            nowhere = os.open(os.devnull, os.O_WRONLY)
            kept = os.dup(2)
            os.dup2(nowhere, 2)
        try:
            yield
        finally:
            if kept is not None:
                os.dup2(kept, 2)
            for number in filter(None, (kept, nowhere)):
                with suppress(OSError):
                    os.close(number)


# Of two threads at once, the second would take the first one's silence for standard error, and restore that.
_SILENCE = threading.Lock()


def _library() -> ModuleType:
    """Return the tokenizers package, which takes a tenth of a second to load."""
    try:
        import tokenizers
    except ImportError:
        raise MissingExtra("A model's tokenizer needs tokenizers: pip install 'attn-cli[models]'") from None
    library: ModuleType = tokenizers
    return library


def _load(library: Any, folder: str, family: str) -> tuple[Any, int]:
    """Return a folder's tokenizer, and how many times as long it makes a text at most."""

    def has(*names: str) -> bool:
        return all(os.path.exists(os.path.join(folder, name)) for name in names)

    if has(OWN):
        return _own(library, folder)
    if has(WORDPIECE):
        return _word_pieces(library, folder), 1
    if has(*BPE):
        return _byte_level(library, folder, family), 1
    raise _no_tokenizer(folder)


def _own(library: Any, folder: str) -> tuple[Any, int]:
    """Return the tokenizer of tokenizer.json: in this process if it is plain, else in a separate one."""
    path = os.path.join(folder, OWN)
    examined = examine(read_bytes(path, MAX_TOKENIZER_BYTES), visible(path))
    unbounded = examined.unbounded
    if not unbounded:
        made = library.Tokenizer.from_buffer(examined.data)
        unbounded = unbounded_model(made.model)
        if not unbounded:
            return made, examined.growth
    return TokenizerProxy(examined.data, visible(folder), unbounded), 1


def _word_pieces(library: Any, folder: str) -> Any:
    """Return the tokenizer of vocab.txt: BERT's."""
    words = enumerate(_text(folder, WORDPIECE).split("\n"))
    vocabulary = {line.rstrip("\r"): n for n, line in words if line.strip()}
    return library.BertWordPieceTokenizer(vocabulary, lowercase=_lower_cased(folder), strip_accents=None)


def _byte_level(library: Any, folder: str, family: str) -> Any:
    """Return the tokenizer of vocab.json and merges.txt: GPT-2's, framed where the family frames its texts."""
    vocabulary = json.loads(_text(folder, BPE[0]))
    if not isinstance(vocabulary, dict) or not all(
        type(n) is int and 0 <= n < 1 << 32 for n in vocabulary.values()
    ):
        raise InputError(f"{visible(os.path.join(folder, BPE[0]))} is not a vocabulary: names with numbers.")
    lines = [line for line in _text(folder, BPE[1]).splitlines() if line and not line.startswith("#version")]
    merges = [tuple(line.split(" ")) for line in lines]
    made = library.ByteLevelBPETokenizer(vocabulary, merges)
    if family in FRAMED:
        ends = [(name, vocabulary[name]) for name in ("</s>", "<s>")]
        if MASKS[1] in vocabulary:  # it takes the space before it along, as a word does
            made.add_special_tokens([library.AddedToken(MASKS[1], lstrip=True)])
        made.post_processor = library.processors.RobertaProcessing(
            *ends, trim_offsets=True, add_prefix_space=False
        )
    elif family == "opt":
        start = ("</s>", vocabulary["</s>"])
        made.post_processor = library.processors.TemplateProcessing("</s> $A", "</s> $A $B:1", [start])
    return made


def _text(folder: str, name: str) -> str:
    """Return a vocabulary, or merges, with so many words at most; what comes of a word takes twenty times its bytes."""
    path = os.path.join(folder, name)
    data = read_bytes(path, LARGEST_LIST)
    if max(data.count(b"\n"), data.count(b",")) > MOST_WORDS:
        raise InputError(f"{visible(path)} has more than {MOST_WORDS:,} words.", "Is it the model's own?")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{visible(path)} is not UTF-8 text.") from None


def _lower_cased(folder: str) -> bool:
    """Tell whether the tokenizer's settings have capitals made small, as BERT's do where they say nothing."""
    path = os.path.join(folder, "tokenizer_config.json")
    if not os.path.exists(path):
        return True
    config = json.loads(read_bytes(path, 1 << 22))
    return not isinstance(config, dict) or config.get("do_lower_case", True) is not False


def _no_tokenizer(folder: str) -> FileError:
    name = visible(folder)
    found = next((file for file in SENTENCEPIECE if os.path.exists(os.path.join(folder, file))), None)
    if found == "source.spm":
        return FileError(
            f"{name} has its tokenizer in {found} and target.spm, which attn does not read.",
            "Encode the texts with the transformers library, and give their token ids.",
        )
    if found is not None:
        return FileError(
            f"{name} has its tokenizer in {found}, which attn does not read.",
            'Convert it there: python -c "from transformers import AutoTokenizer as T; '
            "T.from_pretrained('.').save_pretrained('.')\"",
        )
    return FileError(
        f"{name} has no {OWN}, no {WORDPIECE}, and no {BPE[0]} with {BPE[1]}.",
        "Copy the tokenizer's files into the folder.",
    )
