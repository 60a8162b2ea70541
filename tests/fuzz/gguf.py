"""GGUF files of models: a small one of each architecture, with a tokenizer of its kind, is spoilt or written anew.

Spoilt are mostly the headers. A file that is written anew is sound, and of a model that is not.
"""

from collections.abc import Iterator
from random import Random

from attn_cli.models.checkpoints.gguf_models import ARCHITECTURES
from attn_cli.models.checkpoints.gguf_tokenizer import gguf_tokenizer
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import MAIN, Files, Reader
from tests.models.checkpoints.gguf_by_hand import BYTE_PAIRS, SENTENCE_PIECES, WORD_PIECES, gguf, small

TOKENIZERS = dict.fromkeys(("llama", "gemma", "gemma2", "gemma3", "phi3"), SENTENCE_PIECES)
TOKENIZERS["bert"] = WORD_PIECES
NAMES = tuple(f"gguf {kind}" for kind in ARCHITECTURES)
Tensors = dict[str, tuple[int, tuple[int, ...], bytes]]


def reader(name: str) -> Reader:
    kind = name.removeprefix("gguf ")
    made = small(kind, **TOKENIZERS.get(kind, BYTE_PAIRS))
    sound = gguf(*made)
    header = sound.rindex(b"blk.1") + 60

    def damaged(files: Files, rng: Random) -> Files:
        if rng.random() < 0.5:
            return {MAIN: changed(*made, rng)}
        if rng.random() < 0.1:
            return {MAIN: mutated(sound, rng)}
        return {MAIN: mutated(sound[:header], rng) + sound[header:]}

    return Reader(name, [{MAIN: sound}], damaged)


def use(path: str, reader: Reader, rng: Random) -> Iterator[None]:
    """Rebuild a file's tokenizer, compute its layers and next words, and stop: it could be opened."""
    with Checkpoint(path) as checkpoint:
        gguf_tokenizer(checkpoint.gguf)
        run = checkpoint.run(texts([[1, 2, 3]]))
        for step in run.steps():
            assert step.attended.weights.shape[2:] == (3, 3)
        if run.has_head():
            run.logits(2)
    yield


def changed(metadata: dict[str, object], tensors: Tensors, rng: Random) -> bytes:
    """Return a sound file of a model that is not: with one to three keys or tensors taken out or changed."""
    metadata, tensors = dict(metadata), dict(tensors)
    for _ in range(rng.randint(1, 3)):
        key, name = rng.choice([*metadata]), rng.choice([*tensors])
        kind, shape, data = tensors[name]
        match rng.randrange(6):
            case 0:
                del metadata[key]
            case 1 | 2:
                metadata[key] = other(metadata[key], rng)
            case 3:
                del tensors[name]
                tensors[rng.choice((name[:-1], rng.choice([*tensors])))] = kind, shape, data
            case 4:
                shape = rng.choice((shape[::-1], (*shape, 1), (1, 32)))
                tensors[name] = rng.choice((kind, 0, 1, 2)), shape, data
            case 5:
                tensors[name] = tensors[rng.choice([*tensors])]
    return gguf(metadata, tensors)


def other(value: object, rng: Random) -> object:
    if isinstance(value, list) and rng.random() < 0.8:
        some = value[: rng.randrange(len(value) + 1)]
        return rng.choice((some, value + value, some[:1] * len(value), rng.sample(value, len(value))))
    if isinstance(value, (int, float)) and rng.random() < 0.8:
        numbers = (0, 1, 2, 3, 7, 64, 1 << 31, (1 << 32) - 1)
        floats = (0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), 1.0)
        return rng.choice(numbers if isinstance(value, int) else floats)
    return rng.choice(("", "a", "llama", "\x00\x1b[31m", 3, 1.5, True, [1, 2], ["a"], [], -1.0))
