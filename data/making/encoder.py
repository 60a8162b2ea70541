"""A pretrained encoder of word pieces below the named heads: a teacher that has read far more than our text.

The encoder is of BERT's architecture (Devlin et al. 2019), a folder as transformers writes it: model.safetensors,
config.json and tokenizer.json. A word's row is the mean of its pieces' rows, of all layers with a learned weight each
(Peters et al. 2018), and what its spelling adds, for the pieces have no capitals. `train --teacher` learns from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attn_cli.errors import InputError, visible
from attn_cli.io.array_files import read_safetensors
from attn_cli.io.files import regular
from data.making.deep import Deep
from data.making.layers import Layers, LayerSizes, pytorch
from data.making.lower import Lower
from data.making.settings import DeepTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attn_cli.io.types import Arrays
    from attn_cli.learn.batches import Batch, EncodedSentence, Vocabulary
    from attn_cli.vectors import Vectors

    Tensor = Any  # PyTorch is not there when types are checked
    Floats = NDArray[np.floating]

FORMAT = "attn-encoder/1"
DROPOUT = 0.1  # inside the encoder, as it was pretrained
SHARE = 0.15  # of the step size, that the encoder learns with
PIECES = "bert.embeddings.word_embeddings.weight"


class EncoderFiles(NamedTuple):
    """A pretrained encoder: its numbers by transformers' names, its sizes, and what splits words into pieces."""

    arrays: Arrays
    config: Mapping[str, Any]
    tokenizer: str  # JSON


def read_folder(folder: str | Path) -> EncoderFiles:
    """Return the encoder of a folder; InputError where something is missing."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        tokenizer = (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        said = f"{visible(str(folder))} holds no pretrained encoder."
        raise InputError(said, "Give a folder with model.safetensors, config.json, tokenizer.json.") from None
    arrays, _ = read_safetensors(Path(folder) / "model.safetensors")
    of_layers = ("embeddings.", "encoder.")
    kept = {
        name: value for name, value in arrays.items() if name.startswith(of_layers) and "_ids" not in name
    }
    return EncoderFiles(kept, config, tokenizer)


def sizes(files: EncoderFiles) -> dict[str, int]:
    """Return the settings that the encoder sets: its layers and the named heads' on top, and how large they are."""
    names = {"heads": "num_attention_heads", "width": "hidden_size", "wide": "intermediate_size"}
    found = {name: int(files.config[theirs]) for name, theirs in names.items()}
    return {"layers": int(files.config["num_hidden_layers"]) + 1, **found}


class Encoder(Layers):
    """The layers of a pretrained encoder; `sizes` are theirs, and the named heads' on top.

    `numbers` gives for each feature of a batch the number that it has here, and `features` for one that is none.
    """

    def __init__(
        self, files: EncoderFiles, vectors: Floats, features: int, numbers: NDArray[np.intp] | None = None
    ) -> None:
        from tokenizers import Tokenizer

        self.torch = torch = pytorch()
        self.nearly_zero = float(files.config["layer_norm_eps"])
        self.sizes = LayerSizes(**sizes(files), reach=0)
        self.encoders, self.inner, width = self.sizes.layers - 1, self.sizes.heads, self.sizes.width
        self.tokenizer = Tokenizer.from_str(files.tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.begin, self.end, self.unknown = map(self.tokenizer.token_to_id, ("[CLS]", "[SEP]", "[UNK]"))
        self.vectors = torch.from_numpy(vectors)
        self.features = features
        self.numbers = np.arange(features + 1) if numbers is None else numbers
        self.tensors = {
            f"bert.{name}": torch.from_numpy(np.array(value, np.float32))
            for name, value in files.arrays.items()
        }
        self.tensors["mix"] = torch.zeros(self.encoders + 1)
        self.tensors["start"] = torch.zeros(features + 1, width)
        self.pieces_of: dict[str, list[int]] = {}

    def pieces(self, word: str) -> list[int]:
        """Return the numbers of a word's pieces, at least one."""
        if word not in self.pieces_of:
            found = self.tokenizer.encode(word, add_special_tokens=False).ids
            self.pieces_of[word] = list(found) or [self.unknown]
        return self.pieces_of[word]

    def hidden(self, batch: Batch, dropout: float = 0) -> Tensor:
        """Return a row for each word, (b, n, width)."""
        torch, p = self.torch, self.tensors
        b, n = batch.words.shape
        texts = [[word for one in text.sentences for word in one.words] for text in batch.texts]
        rows = [[self.pieces(word) for word in words] for words in texts]
        longest = 2 + max(sum(map(len, row)) for row in rows)
        ids, places = np.zeros((b, longest), np.intp), np.full((b, longest), n)
        for s, row in enumerate(rows):
            flat = [self.begin, *(piece for word in row for piece in word), self.end]
            ids[s, : len(flat)] = flat
            places[s, 1 : len(flat) - 1] = np.repeat(np.arange(len(row)), [*map(len, row)])
        mean = (places[:, None] == np.arange(n)[:, None]).astype(np.float32)  # (b, n, pieces)
        mean /= np.maximum(mean.sum(axis=2, keepdims=True), 1)
        states = self._states(torch.from_numpy(ids), torch.from_numpy(ids != 0), dropout)
        weights = p["mix"].softmax(0)
        mixed = sum(weight * state for weight, state in zip(weights, states, strict=True))
        features = torch.from_numpy(self.numbers[batch.features]).flatten(0, 1)
        spelled = torch.nn.functional.embedding_bag(
            features, p["start"], mode="sum", padding_idx=self.features
        )
        X = torch.from_numpy(mean) @ mixed + spelled.reshape(b, n, -1)
        if dropout:
            kept = torch.ones(b, 1, X.shape[2])
            X = X * torch.nn.functional.dropout(kept, dropout)
        return X

    def _states(self, ids: Tensor, is_piece: Tensor, dropout: float) -> list[Tensor]:
        """Return the rows of the pieces, (b, pieces, width), before the first layer and after each."""
        torch, p = self.torch, self.tensors
        functional = torch.nn.functional
        share = DROPOUT if dropout else 0.0

        def linear(X: Tensor, name: str) -> Tensor:
            return functional.linear(X, p[f"{name}.weight"], p[f"{name}.bias"])

        def normed(X: Tensor, name: str) -> Tensor:
            width, weight, bias = X.shape[2:], p[f"{name}.weight"], p[f"{name}.bias"]
            return functional.layer_norm(X, width, weight, bias, self.nearly_zero)

        def drop(X: Tensor) -> Tensor:
            """Drop the same columns in all rows of a text, which is quick to draw."""
            return X * functional.dropout(torch.ones(len(X), 1, X.shape[2]), share) if share else X

        e = "bert.embeddings"
        X = p[PIECES][ids] + p[f"{e}.token_type_embeddings.weight"][0]
        X = X + p[f"{e}.position_embeddings.weight"][: ids.shape[1]]
        X = drop(normed(X, f"{e}.LayerNorm"))
        found = [X]
        seen = is_piece[:, None, None]
        for layer in range(self.encoders):
            at = f"bert.encoder.layer.{layer}"
            Q, K, V = (
                linear(X, f"{at}.attention.self.{m}").unflatten(2, (self.inner, -1)).transpose(1, 2)
                for m in ("query", "key", "value")
            )
            z = (Q @ K.transpose(2, 3) / Q.shape[3] ** 0.5).masked_fill(~seen, -1e9)
            joined = (z.softmax(-1) @ V).transpose(1, 2).flatten(2)
            made = drop(linear(joined, f"{at}.attention.output.dense"))
            X = normed(X + made, f"{at}.attention.output.LayerNorm")
            wide = functional.gelu(linear(X, f"{at}.intermediate.dense"))
            X = normed(X + drop(linear(wide, f"{at}.output.dense")), f"{at}.output.LayerNorm")
            found.append(X)
        return found


class EncoderHeads(Deep):
    """The named heads on top of an encoder, and how both learn; the numbers of its word pieces stay."""

    fused = True

    def __init__(
        self, words: Vocabulary, vectors: Floats, settings: DeepTraining, files: EncoderFiles,
        lower: Lower | None = None, texts: Sequence[EncodedSentence] = (),
    ) -> None:  # fmt: skip
        places = {name: n for n, name in enumerate(lower.names if lower else words.names)}
        numbers = np.array([*(places.get(name, len(places)) for name in words.names), len(places)])
        below = Encoder(files, vectors, len(places), numbers)
        super().__init__(words, vectors, settings, lower, texts, below)

    def share(self, name: str) -> float:
        """Return the share of the step size with which the parameters of this name learn; with 0 they stay."""
        if name == PIECES:
            return 0.0
        return SHARE if name.startswith("bert.") else 1.0

    def weights(self, batch: Batch) -> Floats:
        """Return the named heads' weights, (b, h, n, n); products have sixteen bits, which is twice as fast."""
        with self.short_products():
            return super().weights(batch)


class EncoderFile(NamedTuple):
    """A trained encoder with heads, as a file: what `Teachers` asks of it is what it asks of other models."""

    lower: Lower
    files: EncoderFiles

    name = property(lambda self: self.lower.name)
    heads = property(lambda self: self.lower.heads)
    facts = property(lambda self: self.lower.facts)

    def learner(self, words: Vocabulary, vectors: Floats, seed: int, threads: int) -> EncoderHeads:
        """Return it with its heads in the order of `words`."""
        sizes = self.lower.sizes._asdict() | {"dim": self.lower.dim, "reach": self.lower.reach}
        settings = DeepTraining(seed=seed, threads=threads, keep=0, bfloat16=True, **sizes)
        return EncoderHeads(words, vectors, settings.with_defaults(), self.files, self.lower)


def is_encoder(path: str) -> bool:
    """Return whether a file is what `train_encoder` wrote."""
    with regular(path).open("rb") as file:
        return FORMAT.encode() in file.read(1 << 16)


def read_encoder(path: str, table: Vectors) -> EncoderFile:
    """Return what `train_encoder` wrote; InputError where it is of other vectors or damaged."""
    arrays, about = read_safetensors(path)
    name = visible(Path(path).name)
    if about.get("fingerprint") != table.fingerprint():
        raise InputError(f"{name} was learned on other vectors ({visible(about.get('vectors', '?'))}).")
    try:
        facts, config = json.loads(about["facts"]), json.loads(about["config"])
        names = arrays.pop("start.names").tobytes().decode().split("\n")
        settings = facts["settings"]
        sizes = LayerSizes(*(int(settings[one]) for one in LayerSizes._fields))
        rest = {key: value for key, value in arrays.items() if not key.startswith("bert.")}
        inner = {key.removeprefix("bert."): value for key, value in arrays.items() if key not in rest}
        endings, itself = int(settings["endings"]), int(settings["itself"])
        lower = Lower(name, sizes, names, endings, itself, rest, facts, tuple(about["heads"].split(",")))
        return EncoderFile(lower, EncoderFiles(inner, config, about["tokenizer"]))
    except (KeyError, ValueError, TypeError, RecursionError):
        raise InputError(f"{name} is damaged: its settings or names are missing.") from None
