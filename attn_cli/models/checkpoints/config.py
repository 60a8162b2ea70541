"""A checkpoint's config.json: its values, each checked when it is asked for, and the keys that its family declares."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from attn_cli.errors import InputError, count_more, visible
from attn_cli.io.files import read_bytes
from attn_cli.models.checkpoints.blocks import ACTIVATIONS

Kind = TypeVar("Kind")
LARGEST_FILE = 1 << 22
MOST = 1 << 20  # no size in a config but that of a vocabulary is larger
SPELLED = 60  # how much of a bad value an error shows
MOST_NAMED = 5  # unknown keys that a note spells out
LONGEST_KEY = 80

# What may be null in a family that has a default for it, and is then off, or follows from other keys
MAY_BE_NULL = frozenset({
    "sliding_window", "num_key_value_heads", "use_bidirectional_attention", "attn_logit_softcapping",
    "final_logit_softcapping",
})  # fmt: skip

# What no forward pass reads, in any family: names, dtypes, dropout, ids of tokens, other heads, training, generation.
INERT = re.compile(
    r".*dropout.*|.*_pdrop|.*layerdrop|.*dtype|.*_token_ids?|.*_token_index|summary_.*|classif.*|initializer_.*|"
    r"init_std|model_type|architectures|transformers\.?js.*|transformers_version|custom_pipelines|"
    r"_?name_or_path|_commit_hash|_?attn_implementation(_internal|_autoset)?|_?experts_implementation(_internal)?|"
    r"_flash_attn_2_enabled|return_dict(_in_generate)?|output_(attentions|hidden_states|past|scores|logits)|"
    r"use_cache|cache_implementation|torchscript|use_bfloat16|gradient_checkpointing|use_mems.*|"
    r"is_encoder_decoder|is_decoder|add_cross_attention|cross_attention_hidden_size|tie_encoder_decoder|"
    r"tie_last_hidden_states|chunk_size_feed_forward|tokenizer_class|task_specific_params|problem_type|"
    r"finetuning_task|id2label|label2id|_?num_labels|directionality|pooler_.*|pretraining_tp|unsloth_\w+|"
    r"auto_map|offset_alibi|skip_bias_add(_qkv)?|(bias_dropout|masked_softmax)_fusion|attention_softmax_in_fp32|ff_factor|"
    r"vocab_size|max_position_embeddings|type_vocab_size|(intermediate|ffn_hidden)_size|"  # sizes that tensors have
    r"assistant_\w+|num_assistant_\w+|bad_words_ids|(begin_)?suppress_tokens|diversity_penalty|do_sample|"
    r"early_stopping|(encoder_)?(no_repeat_ngram_size|repetition_penalty)|epsilon_cutoff|eta_cutoff|"
    r"exponential_decay_length_penalty|length_penalty|max_(new_)?(length|tokens)|min_(length|new_tokens)|num_beams|"
    r"num_beam_groups|num_return_sequences|prefix|remove_invalid_values|target_lookbehind|temperature|top_[kp]|"
    r"typical_p|quantization(_config)?|force_bos_token_to_be_generated|min_p|renormalize_logits|penalty_alpha|sequence_bias|guidance_scale|"
    r"max_sequence_length|generator_size|replacing_rate|save_step|tf_legacy_loss|use_past|xla_device"
)


# The keys of a config.json, or of an object in it, that a family of models knows: each with its default, which is None
# where there is none, or it follows from others; with Keys for an object; or IDLE, where it changes no number
Keys = Mapping[str, object]
IDLE = object()

# What is asked before the family is known; the second is of MLX
OPEN = {
    "model_type": None, "quantization_config": {"quant_method": "an unnamed method"},
    "quantization": {"mode": "affine", "bits": None, "group_size": None},
}  # fmt: skip


class Config(NamedTuple):
    """The values of a config.json, or of an object in it, as far as its keys are declared.

    A key that is absent has the family's default. One that is null has none, where the family allows that.
    """

    where: str
    values: Mapping[str, object]
    keys: Keys = OPEN

    def has(self, name: str) -> bool:
        """Tell whether a key is read and has a value that is not null, its own or the family's default."""
        return self.reads(name) and self._value(name) is not None

    def reads(self, name: str) -> bool:
        """Tell whether the family reads a key."""
        return self.keys.get(name, IDLE) is not IDLE

    def whole(self, name: str, least: int = 1, most: int = MOST) -> int:
        """Return a whole number from `least` to `most`."""
        if type(value := self._value(name)) is not int or not least <= value <= most:
            raise self.refused(name, f"a whole number from {least} to {most:,}")
        return value

    def number(self, name: str) -> float:
        """Return a positive finite number."""
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
            raise self.refused(name, "a positive number")
        return float(value)

    def flag(self, name: str, otherwise: bool | None = None) -> bool:
        """Return true or false; `otherwise`, if that is given, where the key is not read, or has no value."""
        is_open = otherwise is not None and not self.has(name)
        return bool(otherwise) if is_open else self._of(name, bool, "true or false")

    def word(self, name: str) -> str:
        """Return a string."""
        return self._of(name, str, "a string")

    def several(self, name: str) -> list[object]:
        """Return a list."""
        return self._of(name, list, "a list")

    def _of(self, name: str, kind: type[Kind], wanted: str) -> Kind:
        if not isinstance(value := self._value(name), kind):
            raise self.refused(name, wanted)
        return value

    def each(self, name: str, count: int, what: str = "layers") -> list[object]:
        """Return a list that has a value for each of `count` layers."""
        wanted = f"a list with a value for each of {count} {what}"
        if len(value := self._of(name, list, wanted)) != count:
            raise self.refused(name, wanted)
        return value

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Return a list of so many positive numbers."""
        each = self.each(name, count, "numbers")
        return tuple(self._replace(values={name: one}).number(name) for one in each)

    def optional(self, name: str) -> float | None:
        """Return a positive finite number; None where the key is not read, or null."""
        return self.number(name) if self.has(name) else None

    def name(self, names: Sequence[str]) -> str:
        """Return the first of these keys that has a value, else the first that is read; nothing where none is."""
        read = [name for name in names if self.reads(name)]
        return next((name for name in read if self.values.get(name) is not None), "".join(read[:1]))

    def part(self, name: str) -> Config:
        """Return the object of this name; an empty one where it is absent."""
        value, keys = self.values.get(name), self.keys[name]
        if not isinstance(value, dict | None) or not isinstance(keys, dict):
            raise self.refused(name, "an object")
        return Config(f"{self.where}, {name}", value or {}, keys)

    def shared(self, name: str, whole: int) -> int:
        """Return `whole` divided by the number of this name, which must divide it."""
        if whole % (count := self.whole(name)):
            raise self.refused(name, f"a number that divides {whole}")
        return whole // count

    def refused(self, name: str, wanted: str) -> InputError:
        """Return the error that a value is not as it must be."""
        default = self.keys[name] if self.reads(name) else None
        value = self.values.get(name, default)
        has_none = name not in self.values and default is None
        said = f" has no {name}." if has_none else f": {name} is {_spelled(value)}."
        return InputError(self.where + said, f"It must be {wanted}.")

    def unknown(self, family: str) -> str | None:
        """Return the note on values whose keys the family does not declare; None where there are none."""
        if not (found := [*_unknown(self.values, self.keys)]):
            return None
        named = ", ".join(f"{visible(key)[:SPELLED]} = {_spelled(one)}" for key, one in found[:MOST_NAMED])
        if (more := len(found) - MOST_NAMED) > 0:
            named += f" and {count_more(more, 'key')}"
        return f"config.json says {named}, which attn does not know for {family}: the numbers may differ."

    def _value(self, name: str) -> object:
        value = self.values.get(name, default := self.keys[name])
        if value is None and default is not None and name not in MAY_BE_NULL:
            raise self.refused(name, f"left out, or a value such as {_spelled(default)}")
        return value


def _unknown(values: Mapping[str, object], keys: Keys) -> Iterator[tuple[str, object]]:
    """Yield what is neither declared nor inert; null, and an empty list or object, say nothing."""
    for key, value in values.items():
        inner = keys.get(key)
        is_inert = len(key) <= LONGEST_KEY and INERT.fullmatch(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            yield from ((f"{key}.{name}", one) for name, one in _unknown(value, inner))
        elif not ((key in keys and not isinstance(inner, dict)) or value in (None, [], {}) or is_inert):
            yield key, value


def _spelled(value: object) -> str:
    try:
        spelled = json.dumps(value)
    except RecursionError:
        return "a deeply nested value"
    return visible(spelled if len(spelled) <= SPELLED else spelled[:SPELLED] + "...")


def read_config(folder: str) -> Config:
    """Return the config.json of a checkpoint's folder; raise InputError where it cannot be used."""
    where = visible(path := os.path.join(folder, "config.json"))
    try:  # NaN is refused where it is asked for
        values = json.loads(read_bytes(path, LARGEST_FILE), parse_constant=float)
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not JSON.") from None
    if not isinstance(values, dict):
        raise InputError(f"{where} is not a JSON object.")
    config = Config(where, values)
    if values.get("quantization") is None and values.get("quantization_config") is not None:
        said = config.part("quantization_config")
        older = {"load_in_8bit", "load_in_4bit"} & said.values.keys()  # which did not name the method
        method = "bitsandbytes" if older else said.word("quant_method")
        if method != "mxfp4":  # whose tensors say so
            raise quantised(where, method)
    return config


def quantised(where: str, method: str) -> InputError:
    """Return the error for weights that attn does not unpack, with the method's name."""
    said = f"{where}: the weights are quantised ({visible(method)[:SPELLED]}), which attn does not unpack."
    wanted = "with weights in float32, float16 or bfloat16, or a GGUF file of it."
    return InputError(said, f"Use the checkpoint that it was made from, {wanted}")


BITS = (2, 3, 4, 5, 6, 8)  # of MLX's numbers


class Affine(NamedTuple):
    """How MLX quantizes a matrix: a scale and an offset for each group of a row's numbers."""

    bits: int
    group: int


ReadAffine = Callable[[str], Affine | None]  # of a tensor's name


def read_affine(config: Config) -> ReadAffine | None:
    """Return what tells how the weights of this name are quantized; None where the folder is not of MLX.

    Raises InputError where MLX quantizes in a way that attn does not unpack.
    """
    if config.values.get("quantization") is None:
        return None
    whole = config.part("quantization")

    def affine(c: Config) -> Affine:
        if c.word("mode") != "affine":
            raise c.refused("mode", "affine: attn unpacks no other")
        if (bits := c.whole("bits", most=8)) not in BITS:
            raise c.refused("bits", f"one of {', '.join(map(str, BITS))}")
        if (group := c.whole("group_size", most=1 << 10)) % 32:
            raise c.refused("group_size", "a multiple of 32")
        return Affine(bits, group)

    def found(name: str) -> Affine | None:
        own = whole.values.get(name.removesuffix(".weight"))
        given = {**whole.values, **own} if isinstance(own, dict) else whole.values
        return None if own is False else affine(whole._replace(values=given))

    affine(whole)
    return found


MOST_LAYERS = 1000


def activation(c: Config, name: str) -> str:
    """Return the activation that the key of this name gives."""
    if (found := c.word(name)) not in ACTIVATIONS:
        raise c.refused(name, f"one of {', '.join(ACTIVATIONS)}")
    return found


def looks_back(c: Config, otherwise: bool) -> bool:
    """Tell whether words look at themselves and those before only; null, which means no to some, is refused."""
    return c.flag("is_decoder", True) and c.flag("is_causal", otherwise)
