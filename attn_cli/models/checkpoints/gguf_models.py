"""GGUF files as models of the families that attn knows: llama.cpp's names of keys and tensors, and what it changes.

Its converter (convert_hf_to_gguf.py) renames tensors, adds one to Gemma's norm weights, lays GPT-2's matrices out-in,
and puts the rows of Llama's queries and keys in the order in which llama.cpp rotates pairs of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from attn_cli.errors import InputError, did_you_mean, refuse_input, visible
from attn_cli.io.types import Ints, NamedTuple
from attn_cli.models.checkpoints import (
    COUNT,
    EPS,
    EXPERTS,
    HEADS,
    WIDTH,
    Logits,
    Model,
    Plan,
    Stack,
    decoder_plans,
    families,
    quantized,
)
from attn_cli.models.checkpoints.config import IDLE, Config
from attn_cli.models.checkpoints.gguf import Gguf, Packed
from attn_cli.models.checkpoints.positions import FULL, LOCAL, Rotaries, Windows

ROLES = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "qkv": "attn_qkv", "o": "attn_output", "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm", "norm_1": "attn_norm", "norm_2": "ffn_norm", "after_1": "post_attention_norm",
    "after_2": "post_ffw_norm", "gate": "ffn_gate", "up": "ffn_up", "gate_up": "ffn_up", "down": "ffn_down",
    "sinks": "attn_sinks", "router": "ffn_gate_inp", "shared_share": "ffn_gate_inp_shexp",
    **{f"expert_{role}": f"ffn_{role}_exps[{{}}]" for role in ("gate", "up", "down")},
    **{f"shared_{role}": f"ffn_{role}_shexp" for role in ("gate", "up", "down")},
}  # fmt: skip
AFTER = {"norm_1": "attn_output_norm", "norm_2": "layer_output_norm"}  # where norms stand after the sum
# What a key is called in a config.json: the first name that the family reads
KEYS: Mapping[str, tuple[str, ...]] = {
    "block_count": COUNT, "embedding_length": WIDTH, "attention.head_count": HEADS,
    "attention.head_count_kv": ("num_key_value_heads",), "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": EPS, "attention.layer_norm_epsilon": EPS, "rope.freq_base": ("rope_theta",),
    "rope.freq_base_swa": ("rope_local_base_freq",), "context_length": ("max_position_embeddings",),
    "attention.sliding_window": ("sliding_window",), "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",), "attention.causal": ("is_causal",),
    "expert_count": EXPERTS[::-1], "expert_used_count": ("num_experts_per_tok",),
    "attention.sliding_window_pattern": ("sliding_window_pattern",), "layer_types": ("layer_types",),
}  # fmt: skip
DIVISORS = "rope_freqs.weight"
# of LongRoPE
BY_LENGTH = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}
YARN = {"attention_factor": "yarn_attn_factor", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
# What the tensors say as well, or what is read below
KNOWN = {
    "feed_forward_length", "vocab_size", "attention.value_length", "rope.dimension_count", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned", "pooling_type",
    "expert_feed_forward_length", "expert_shared_feed_forward_length", "tensor_data_layout",
    "attention.key_length_swa", "attention.value_length_swa", "context_length",
    *(f"rope.scaling.{name}" for name in YARN.values()),
}  # fmt: skip


class Architecture(NamedTuple):
    """How llama.cpp's files of an architecture differ from those that their family is described by."""

    family: str
    truncates: bool = True  # YaRN's range, as config.json says it
    is_permuted: bool = False  # rows of q and k, for rotation of neighbours
    values: Mapping[str, object] = {}  # of a config.json, which no file says
    roles: Mapping[str, str] = {}  # names of its own
    largest: int = 0  # layers of the one size whose scores are scaled by its width a head (Gemma's 27B)


ARCHITECTURES = {
    **{name: Architecture(name) for name in ("qwen2", "qwen3", "gemma", "phi3", "olmo2", "gpt2", "bert")},
    "llama": Architecture("llama", is_permuted=True),
    "gemma2": Architecture("gemma2", largest=46),
    "gemma3": Architecture("gemma3_text", largest=62),
    "gpt-oss": Architecture("gpt_oss", truncates=False, roles={"norm_2": "post_attention_norm"}),
    "qwen2moe": Architecture("qwen2_moe"),
    "qwen3moe": Architecture("qwen3_moe", values={"norm_topk_prob": True}),
}
WINDOW = "attention.sliding_window"
OLMO3 = Architecture("olmo3")  # llama.cpp's olmo2 with windows


def describe_gguf(gguf: Gguf) -> tuple[Model, dict[str, Ints]]:
    """Return the model of a GGUF file, and the tensors whose rows stand in another order: where each row lies.

    Raises InputError if attn does not know the architecture.
    """
    name = gguf.metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        said = f"{gguf.where}: attn does not know the architecture {visible(str(name))[:60]!r}."
        hint = f"It knows {', '.join(ARCHITECTURES)}."
        raise InputError(said, did_you_mean(str(name), ARCHITECTURES) + hint)
    own = OLMO3 if f"olmo2.{WINDOW}" in gguf.metadata else ARCHITECTURES[name]
    values, notes = _values(gguf, name, own)
    model = _renamed(own, gguf)(Config(f"{gguf.where}, {name}", values, families.FAMILIES[own.family][1]))
    (stack,) = model.stacks.values()
    orders = dict(_orders(gguf, stack)) if own.is_permuted else {}
    return model._replace(family=own.family, notes=tuple(notes)), orders


def _orders(gguf: Gguf, stack: Stack) -> Iterator[tuple[str, Ints]]:
    """Yield the queries' and keys' tensors, and where each row lies: a head's two halves lie one by one in turn."""
    for role, heads in (("q", stack.heads), ("k", stack.kv_heads)):
        rows = heads * stack.d_k
        order = np.arange(rows).reshape(heads, stack.d_k // 2, 2).swapaxes(1, 2).reshape(-1)
        names = [f"{one.place}{ROLES[role]}.{part}" for one in stack.layers for part in ("weight", "bias")]
        there = (name for name in names if name in gguf.tensors and gguf.tensors[name].shape[0] == rows)
        yield from dict.fromkeys(there, order).items()


def _values(gguf: Gguf, name: str, own: Architecture) -> tuple[dict[str, object], list[str]]:
    """Return the values of a config.json, and notes on keys that attn does not know."""
    (plan, keys), given = families.FAMILIES[own.family], dict(_given(gguf, name))
    reads = {key for key, default in keys.items() if default is not IDLE}
    if given.get("expert_count") and "num_experts_per_tok" not in reads:
        raise InputError(f"{gguf.where} is a mixture of experts, which attn does not compute.")
    # BERT's head has layers of its own, which no file holds: the table alone would make other scores
    is_tied = "output.weight" not in gguf.tensors and not (isinstance(plan, Plan) and plan.logits.dense)
    values = {**own.values, "tie_word_embeddings": is_tied}
    known = set(KNOWN)
    for key, names in KEYS.items():
        called = next((one for one in names if one in reads), None)
        if key in given and called is not None:
            values[called] = given[key]
            known.add(key)
    if not given.get(WINDOW, name == "gemma2"):  # 0 is none, and only Gemma 2 has one that is not said
        values["sliding_window"] = None
    if "head_dim" in reads and "head_dim" not in values:
        values["head_dim"] = _width(given)
    if "attention_bias" in reads:
        values["attention_bias"] = "blk.0.attn_q.bias" in gguf.tensors
    if own.largest:
        is_largest = given.get("block_count") == own.largest
        values["query_pre_attn_scalar"] = _width(given) if is_largest else values["head_dim"]
    rotated, d_k = given.get("rope.dimension_count"), values.get("head_dim")
    if rotated is not None and rotated != (d_k or _width(given)):
        if "partial_rotary_factor" not in reads or type(rotated) is not int:
            said = f"{gguf.where}: {visible(str(rotated))[:40]} numbers of a head are rotated, and not all."
            raise InputError(said, f"attn knows {name} with all of them rotated.")
        values["partial_rotary_factor"] = rotated / (_width(given) or 1)
    values |= _scaling(gguf, given, own.truncates)
    known |= {"rope.scaling.attn_factor"} if BY_LENGTH["long_factor"] in gguf.tensors else set()
    unknown = ", ".join(map(visible, sorted(set(given) - known)[:5]))
    note = f"The file says {unknown}, which attn does not know: the numbers may differ."
    return values, [note] if unknown else []


def _scaling(gguf: Gguf, given: Mapping[str, Any], truncates: bool) -> dict[str, object]:
    """Return how positions are scaled, as a config.json says it."""
    first, kind = given.get("rope.scaling.original_context_length"), given.get("rope.scaling.type", "none")
    scaling = {"rope_type": kind, "factor": given.get("rope.scaling.factor")}
    if BY_LENGTH["long_factor"] in gguf.tensors:
        scaling = {"rope_type": "longrope", "attention_factor": given.get("rope.scaling.attn_factor")}
        scaling |= {key: _tensor(gguf, name) for key, name in BY_LENGTH.items()}
    elif kind == "none":
        return {}
    scaling |= {key: given.get(f"rope.scaling.{name}", scaling.get(key)) for key, name in YARN.items()}
    scaling |= {"original_max_position_embeddings": first, "truncate": truncates}
    found: dict[str, object] = {"rope_scaling": {key: one for key, one in scaling.items() if one is not None}}
    return found | ({} if first is None else {"original_max_position_embeddings": first})


def _tensor(gguf: Gguf, name: str) -> list[float]:
    refuse_input(name not in gguf.tensors, f"{gguf.where} has no tensor {name}.")
    stored = quantized.Stored(gguf.file, gguf.tensors[name], f"{gguf.where}: {name}", gguf.packings.get(name))
    return [*map(float, stored.read().reshape(-1))]


def _given(gguf: Gguf, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the architecture's own keys; of a value a layer, the one that all have."""
    for key, value in gguf.metadata.items():
        if not key.startswith(f"{name}."):
            continue
        of_all = key.removeprefix(f"{name}.")
        if isinstance(value, Packed):
            each = value.values()
            if of_all == f"{WINDOW}_pattern":
                of_all, each = "layer_types", [[LOCAL if has_window else FULL for has_window in each]]
            elif len({*each}) != 1:
                said = f"{visible(key)} differs by layer, which attn does not compute."
                raise InputError(f"{gguf.where}: {said}")
            value = each[0]
        yield of_all, value


def _width(given: Mapping[str, Any]) -> Any:
    try:
        return given["embedding_length"] // given["attention.head_count"]
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _renamed(own: Architecture, gguf: Gguf) -> Plan:
    """Return a plan with llama.cpp's names, for weights as its converter writes them."""
    plan = decoder_plans.APART if own.family == "gpt_oss" else families.FAMILIES[own.family][0]
    assert isinstance(plan, Plan)
    stack, words = plan.stack, plan.stack.words
    roles = {**(ROLES if stack.pre_norm else ROLES | AFTER), **own.roles}
    places, types = words.positions and "position_embd.weight", words.types and "token_types.weight"
    norm, tables = words.norm and "token_embd_norm", ("token_embd.weight",)
    named = words._replace(tables=tables, positions=places, types=types, norm=norm)
    kind = "rms" if stack.norm == "rms, gain less one" else stack.norm
    last = stack.last_norm and "output_norm"
    changed = stack._replace(words=named, in_out=False, norm=kind, last_norm=last)
    names, logits = {role: roles[role] for role in plan.names}, Logits(("output.weight",))
    plan = plan._replace(stack=changed, names=names, place="blk.{}.", prefixes=(), logits=logits)
    return plan._replace(head_activation=None, rotaries=plan.rotaries and _rotaries(plan, gguf))


def _rotaries(plan: Plan, gguf: Gguf) -> Callable[[Config, int, Windows], Rotaries] | None:
    """Return what reads the rotations: the file may have a number for each frequency, by which it is divided."""
    read = plan.rotaries
    if DIVISORS not in gguf.tensors or read is None:
        return read
    divisors = tuple(_tensor(gguf, DIVISORS))

    def rotaries(c: Config, d_k: int, windows: Windows) -> Rotaries:
        if len(divisors) != d_k // 2:
            wanted = f"it would have {d_k // 2}"
            raise InputError(f"{gguf.where}: {DIVISORS} has {len(divisors)} numbers; {wanted}.")
        return [one and one._replace(divisors=divisors) for one in read(c, d_k, windows)]

    return rotaries
