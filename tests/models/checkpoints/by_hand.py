"""Small checkpoints written by hand, without PyTorch."""

import json
import struct
from pathlib import Path

import numpy as np

LETTERS = ("a", "b", "c", "d", "Ġa", "Ġb")
FRAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = (*FRAMES, "the", "cat", "##s", "walk", "##ing", "home", "a", "b", "c")


def as_bfloat16(array):
    """Return the upper halves of a float32 array's numbers, cut off and not rounded."""
    return (np.asarray(array, np.float32).view("<u4") >> 16).astype("<u2")


def safetensors(arrays):
    """Return the bytes of a safetensors file; numbers of 16 bits are those of bfloat16."""
    names = {"float32": "F32", "float16": "F16", "float64": "F64", "uint16": "BF16"}
    names |= {"int8": "I8", "uint8": "U8", "uint32": "U32"}
    header, end = {}, 0
    for key, array in arrays.items():
        start, end = end, end + array.nbytes
        kind, shape = names[str(array.dtype)], list(array.shape)
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + b"".join(array.tobytes() for array in arrays.values())


def saved(folder, config, arrays):
    """Write a checkpoint's folder, and return its name."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors(arrays))
    return str(folder)


def byte_pairs(folder, vocabulary=LETTERS, merges=()):
    """Write a byte-level tokenizer, as GPT-2 has one, into a model's folder."""
    folder = Path(folder)
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(vocabulary)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))


def word_pieces(folder, vocabulary=PIECES, lower=True):
    """Write a tokenizer of word pieces, as BERT has one, into a model's folder."""
    folder = Path(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))


def drawn(seed, shapes):
    """Return random tensors of these shapes, in their order; a LayerNorm changes nothing."""
    draw, norms = np.random.default_rng(seed), {"LayerNorm.weight": np.ones, "LayerNorm.bias": np.zeros}
    made = {name: norms.get(".".join(name.split(".")[-2:]), draw.standard_normal) for name in shapes}
    return {name: made[name](shape).astype(np.float32) for name, shape in shapes.items()}


def linear(name, *shape, made=0):
    """Return the shapes of a weight and its bias, which is as long as the axis of what is made."""
    return {f"{name}.weight": shape, f"{name}.bias": (shape[made],)}


def in_layers(place, layers, shapes):
    """Return the shapes of so many layers."""
    return {f"{place}.{n}.{name}": shape for n in range(layers) for name, shape in shapes.items()}


GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "activation_function": "relu"}


def gpt2(seed=0, vocabulary=6, places=10, d=8, layers=2):
    """Return the tensors of a small random GPT-2."""
    layer = linear("ln_1", d) | linear("ln_2", d) | linear("attn.c_attn", d, 3 * d, made=1)
    layer |= linear("attn.c_proj", d, d)
    layer |= linear("mlp.c_fc", d, 4 * d, made=1) | linear("mlp.c_proj", 4 * d, d, made=1)
    whole = {"wte.weight": (vocabulary, d), "wpe.weight": (places, d)} | in_layers("h", layers, layer)
    return drawn(seed, whole | linear("ln_f", d))


def small_gpt2(folder, tensors=None, **config):
    """Write a GPT-2 of six letters with its tokenizer, and return the folder's name."""
    name = saved(folder, GPT2 | config, gpt2() if tensors is None else tensors)
    byte_pairs(name)
    return name


BERT = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 16, "hidden_act": "relu"}


def bert(seed=0, vocabulary=14, places=12, d=8, layers=2, head=True, wide=2):
    """Return the tensors of a random BERT, with or without the head that makes words; its network is d x wide d."""
    rows, layer = {"word": vocabulary, "position": places, "token_type": 2}, {}
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        layer |= linear(f"attention.{name}", d, d)
    layer |= linear("intermediate.dense", wide * d, d) | linear("output.dense", d, wide * d)
    layer |= linear("attention.output.LayerNorm", d) | linear("output.LayerNorm", d)
    whole = {f"embeddings.{name}_embeddings.weight": (count, d) for name, count in rows.items()}
    whole |= linear("embeddings.LayerNorm", d) | in_layers("encoder.layer", layers, layer)
    if head:
        of = "cls.predictions."
        whole |= linear(f"{of}transform.dense", d, d) | linear(f"{of}transform.LayerNorm", d)
        whole |= {f"{of}bias": (vocabulary,)}
    return drawn(seed, whole)


GEMMA2 = {
    "model_type": "gemma2", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 2,
    "num_key_value_heads": 1, "intermediate_size": 4, "query_pre_attn_scalar": 4, "attn_logit_softcapping": 2.0,
    "sliding_window": 100, "rms_norm_eps": 1e-12,
}  # fmt: skip


def gemma2(seed=0, vocabulary=6, d=4, heads=2, pairs=1):
    """Return the tensors of a small random Gemma 2: one layer, heads of two numbers, which share pairs of k and v."""
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    layer = {f"{name}_layernorm": (d,) for name in norms} | {
        "self_attn.q_proj": (2 * heads, d), "self_attn.k_proj": (2 * pairs, d), "self_attn.v_proj": (2 * pairs, d),
        "self_attn.o_proj": (d, 2 * heads), "mlp.gate_proj": (4, d), "mlp.up_proj": (4, d), "mlp.down_proj": (d, 4),
    }  # fmt: skip
    whole = in_layers("layers", 1, layer) | {"embed_tokens": (vocabulary, d)}
    made = drawn(seed, {f"{name}.weight": shape for name, shape in whole.items()})
    return made | {"norm.weight": np.zeros(d, np.float32)}


GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 2,
    "num_key_value_heads": 1, "intermediate_size": 3, "num_local_experts": 2, "num_experts_per_tok": 1,
}  # fmt: skip


def gpt_oss(seed=0, vocabulary=6, d=4, layers=2, m=3):
    """Return the tensors of a small random GPT-OSS, whose sinks take some of each row."""
    layer = {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,), "self_attn.sinks": (2,)}
    for name, *shape in (("q", 4, d), ("k", 2, d), ("v", 2, d), ("o", d, 4)):
        layer |= linear(f"self_attn.{name}_proj", *shape)
    layer |= linear("mlp.router", 2, d)
    layer |= {"mlp.experts.gate_up_proj": (2, d, 2 * m), "mlp.experts.down_proj": (2, m, d)}
    layer |= {"mlp.experts.gate_up_proj_bias": (2, 2 * m), "mlp.experts.down_proj_bias": (2, d)}
    words = {"embed_tokens.weight": (vocabulary, d), "norm.weight": (d,), "lm_head.weight": (vocabulary, d)}
    return drawn(seed, in_layers("layers", layers, layer) | words)


def small_gpt_oss(folder):
    """Write a GPT-OSS of six letters with its tokenizer, and return the folder's name."""
    name = saved(folder, GPT_OSS, gpt_oss())
    byte_pairs(name)
    return name


def small_bert(folder, pieces=PIECES, **more):
    """Write a BERT of a few word pieces with its tokenizer, and return the folder's name."""
    name = saved(folder, BERT, bert(vocabulary=len(pieces), **more))
    word_pieces(name, pieces)
    return name
