"""GGUF files: the numbers of the folder that a file was made of, of llama.cpp's own package, and of transformers."""

import json
import math
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from attn_cli.errors import AttnError, InputError
from attn_cli.io.array_files import read_safetensors
from attn_cli.models.checkpoints.config import BITS
from attn_cli.models.checkpoints.gguf import open_gguf
from attn_cli.models.checkpoints.gguf_tokenizer import GPT_4O, LLAMA_3, QWEN_2, gguf_tokenizer
from attn_cli.models.checkpoints.open_model import TextEncoder
from attn_cli.models.checkpoints.quantized import QUANTIZED
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.fuzz.mutate import mutated
from tests.models.checkpoints import by_hand, gguf_by_hand
from tests.models.checkpoints.gguf_by_hand import BYTE_PAIRS, LLAMA, converted, eight_bits, gguf, llama, small
from tests.models.checkpoints.test_known import written
from tests.models.checkpoints.test_parity import CASES, TEXTS, made, same_as_by_vectors
from tests.shell import attn, record, refused, told

IDS = ([1, 2, 3, 4, 5, 0, 2], [3, 1])


def numbers(model):
    """Return all weights of all layers, and the logits, of a folder or a file."""
    with Checkpoint(str(model)) as checkpoint:
        run = checkpoint.run(texts(IDS))
        steps = list(run.steps())
        assert all(same_as_by_vectors(run, step, model) for step in steps)
        return [step.attended.weights for step in steps], run.logits() if run.has_head() else run.output()


def alike(found, expected, far=1e-5):
    for one, other in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(one, other, atol=far)
    np.testing.assert_allclose(found[1], expected[1], atol=far * max(1, np.abs(expected[1]).max()))


@pytest.fixture
def folder(tmp_path):
    return by_hand.saved(tmp_path / "llama", LLAMA, llama())


def own(case):
    """Return the settings that all files of a family have."""
    found = {"mlp_bias": False} if "mlp_bias" in case.settings else {}
    found |= {"norm_topk_prob": True} if case.family == "qwen3_moe" else {}
    found |= {"query_pre_attn_scalar": case.settings["head_dim"]} if "gemma" in case.family else {}
    return found


KNOWN = """llama; mistral, no window; qwen2; qwen3; gemma2; gemma3; phi3; olmo2; olmo3; gpt_oss; qwen2_moe; qwen3_moe;
gpt2; bert; llama, biases""".replace("\n", " ").split("; ")


@pytest.mark.parametrize("name", KNOWN)
def test_a_file_has_the_numbers_of_the_folder_that_it_was_made_of(name, tmp_path):
    more = own(CASES[name])
    more |= {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]} if name == "olmo3" else {}
    whole = written(name, tmp_path / "whole", **more)
    path = converted(whole, tmp_path / "x.gguf")
    with Checkpoint(path) as checkpoint, Checkpoint(str(whole)) as other:
        assert checkpoint.model.notes == ()
        weights, made = numbers(whole)
        if name == "bert":  # no file has its head
            with pytest.raises(InputError, match="has no language-model head"):
                checkpoint.run(texts(IDS)).logits()
            made = other.run(texts(IDS)).output()
    alike(numbers(path), (weights, made))


def test_eight_and_sixteen_bits_are_near_and_the_numbers_are_those_that_the_bits_say(folder, tmp_path):
    path = converted(folder, tmp_path / "x.gguf", eight_bits)
    whole, (found, _) = numbers(folder), numbers(path)
    assert 1e-5 < np.abs(found[0] - whole[0][0]).max() < 0.05
    with Checkpoint(path) as checkpoint:
        table = checkpoint.weights.read("token_embd.weight", 40, 64)
    own = read_safetensors(f"{folder}/model.safetensors")[0]["model.embed_tokens.weight"]
    steps = np.repeat(np.abs(own.reshape(-1, 32)).max(axis=1) / 127, 32).reshape(own.shape)
    assert (np.abs(table - own) <= 0.51 * steps).all()
    for quantize in (
        lambda array: (gguf_by_hand.BF16, array.shape, by_hand.as_bfloat16(array).tobytes()),
        lambda array: gguf_by_hand.stored(array.astype(np.float16)),
    ):
        found, _ = numbers(converted(folder, tmp_path / "x.gguf", quantize))
        assert 0 < np.abs(found[0] - whole[0][0]).max() < 0.05


def test_what_divides_each_frequency_divides_it(folder, tmp_path):
    """A number for each frequency, all alike, is what transformers calls linear scaling."""
    config = json.loads(Path(folder, "config.json").read_text())
    scaled = config | {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}
    other = by_hand.saved(tmp_path / "scaled", scaled, llama())
    path, three = tmp_path / "x.gguf", np.full(8, 3, np.float32)
    alike(numbers(converted(folder, path, further={"rope_freqs.weight": three})), numbers(other))
    with pytest.raises(InputError, match=r"rope_freqs\.weight has 7 numbers; it would have 8"):
        numbers(converted(folder, path, further={"rope_freqs.weight": three[:7]}))
    for name in ("phi3, longrope", "phi3, longrope, long", "phi3, longrope, a factor"):
        whole = written(name, tmp_path / name)
        told = json.loads(Path(whole, "config.json").read_text())
        rope, first = told["rope_parameters"], told.get("original_max_position_embeddings", 4096)
        factors = {one: np.float32(rope[f"{one}_factor"]) for one in ("short", "long")}
        further = {f"rope_factors_{one}.weight": factor for one, factor in factors.items()}
        more = {"original_context_length": first, "attn_factor": rope.get("attention_factor")}
        more = {f"phi3.rope.scaling.{key}": one for key, one in more.items() if one is not None}
        alike(numbers(converted(whole, path, further=further, **more)), numbers(whole))
        with Checkpoint(str(path)) as checkpoint:
            assert checkpoint.model.notes == ()


def test_the_scores_of_the_largest_gemmas_are_scaled_by_their_width_a_head(tmp_path):
    for kind, layers, of in (("gemma2", 46, 16), ("gemma2", 45, 8), ("gemma3", 62, 16), ("gemma3", 61, 8)):
        told = {"block_count": layers, "attention.key_length": 8, "rope.dimension_count": 8}
        more = {f"{kind}.{key}": one for key, one in told.items()}
        (tmp_path / "x.gguf").write_bytes(gguf(small(kind, **more)[0], {}))
        with Checkpoint(str(tmp_path / "x.gguf")) as checkpoint:
            assert checkpoint.model.decoder.layers[0].scale == of**-0.5, (kind, layers)


UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# One block of each kind, counted by hand: a few of its numbers
BLOCKS = {
    "Q4_0": (struct.pack("<e", 2) + bytes([0x3F] + [0x88] * 15), {0: 2 * (15 - 8), 16: 2 * (3 - 8), 1: 0}),
    "Q4_1": (struct.pack("<2e", 2, 1) + bytes([0x3F] + [0] * 15), {0: 31, 16: 7, 1: 1}),
    "Q5_0": (struct.pack("<eI", 2, 1 | 1 << 16) + bytes([0x3F] + [0] * 15), {0: 30, 16: 6, 1: -32}),
    "Q5_1": (struct.pack("<2eI", 2, 1, 1) + bytes([0x3F] + [0] * 15), {0: 63, 16: 7, 1: 1}),
    "Q8_0": (struct.pack("<e", 0.5) + struct.pack("32b", *range(-16, 16)), {0: -8, 31: 7.5}),
    "Q2_K": (
        bytes([0x23] * 16) + bytes([0b11100100] * 64) + struct.pack("<2e", 2, 1),
        {0: -2, 32: 6 - 2, 64: 12 - 2, 96: 18 - 2, 255: 16},
    ),
    "Q3_K": (
        bytes([0xFF] * 31 + [0]) + bytes([0b11] * 64) + bytes([0] * 8 + [0b10101010] * 4) + struct.pack("<e", 2),
        {0: 0, 31: 2 * (0 + 32 - 32) * -1, 33: 0},
    ),
    "Q4_K": (
        struct.pack("<2e", 2, 1) + bytes([0xC3] * 4 + [0x85] * 4 + [0x21] * 4) + bytes([0x4F] * 128),
        {0: 2 * 3 * 15 - 5, 32: 2 * 3 * 4 - 5, 128: 2 * (48 + 1) * 15 - (32 + 2), 255: 2 * 49 * 4 - 34},
    ),
    "Q5_K": (
        struct.pack("<2e", 2, 1) + bytes([3] * 4 + [5] * 4 + [0] * 4) + bytes([1] * 32) + bytes([0x4F] * 128),
        {0: 2 * 3 * 31 - 5, 32: 2 * 3 * 4 - 5, 128: 0},
    ),
    "Q6_K": (
        bytes([0x4F] * 128) + bytes([0b11100100] * 64) + struct.pack("16b", *[2] * 16) + struct.pack("<e", 0.5),
        {0: 15 - 32, 32: 16 + 15 - 32, 64: 32 + 4 - 32, 96: 48 + 4 - 32},
    ),
    "IQ4_NL": (  # llama.cpp's kvalues_iq4nl, upwards in the low halves of the bytes, downwards in the high ones
        struct.pack("<e", 2) + bytes(range(0xF0, 0x0E, -15)),
        {n: 2 * one for n, one in enumerate((*UNEVEN, *UNEVEN[::-1]))},
    ),
    "IQ4_XS": (
        struct.pack("<eH", 2, 0b10) + bytes([0x11] * 4) + bytes([0xF0] * 128),
        {0: 2 * (33 - 32) * -127, 16: 2 * (33 - 32) * 113, 32: 2 * (1 - 32) * -127},
    ),
    "MXFP4": (bytes([129] + [0x71] * 16), {0: 4 * 0.5, 16: 4 * 6}),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, _ in QUANTIZED.values()])
def test_a_block_is_what_its_bits_say(name):
    data, expected = BLOCKS[name]
    packing = dict(QUANTIZED.values())[name]
    found = packing.unpack(np.frombuffer(data, packing.dtype)).reshape(-1)
    assert len(data) == packing.dtype.itemsize and len(found) == packing.numbers
    assert {place: found[place] for place in expected} == expected


@pytest.mark.parametrize("e", [0, 1, 2, 3, 127, 252])
def test_a_block_s_power_of_two_is_its_own_down_to_the_smallest(e):
    packing = dict(QUANTIZED.values())["MXFP4"]
    found = packing.unpack(np.frombuffer(bytes([e] + [0x71] * 16), packing.dtype))[0]
    assert found[[0, 16]].tolist() == [math.ldexp(0.5, e - 127), math.ldexp(6, e - 127)]


def test_a_command_shows_a_file_as_it_shows_a_folder(folder, tmp_path):
    path = converted(folder, tmp_path / "x.gguf", eight_bits, **BYTE_PAIRS)
    assert record("self", "ab a b", "-m", path)["query_tokens"] == ["<s>", "ab", "Ġa", "Ġb"]
    (tmp_path / "texts.txt").write_text("ab a\nb\n")
    lines = attn("batch", str(tmp_path / "texts.txt"), "-m", path)
    assert lines.code == 0 and len(lines.out.splitlines()) == 2, lines.err


def test_ollama_s_models_are_found_by_name(folder, tmp_path, monkeypatch):
    path = converted(folder, tmp_path / "x.gguf", **BYTE_PAIRS)
    kept, digest = tmp_path / ".ollama" / "models", "0123456789abcdef" * 4
    manifest = kept / "manifests/registry.ollama.ai/library/tiny/latest"
    other = kept / "manifests/registry.ollama.ai/me/tiny/7b"
    for place in (manifest, other):
        place.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [{"mediaType": "text", "digest": "sha256:0"}, layer]}))
    (kept / "blobs").mkdir()
    os.rename(path, kept / f"blobs/sha256-{digest}")
    other.write_text(manifest.read_text())
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert all(told("self", "ab a", "-m", f"ollama:{name}") for name in ("tiny", "tiny:latest", "me/tiny:7b"))
    monkeypatch.setenv("OLLAMA_MODELS", str(kept))
    layer["digest"] = "sha256:../../etc/passwd"
    manifest.write_text(json.dumps({"layers": [layer]}))
    for name in ("tiny", "other", "tiny:7b"):
        way = f"get it with `ollama pull {name}`; `ollama list` shows what there is."
        said = f"Ollama keeps no model {name} in {kept}. attn downloads no models: {way}"
        assert refused("self", "ab a", "-m", f"ollama:{name}", code=65).endswith(f"{said}\n")
    said = "'../tiny' is not the name of a model. Give a name such as ollama:llama3.2:1b."
    assert refused("self", "ab a", "-m", "ollama:../tiny", code=66).endswith(f"{said}\n")


def affine(array, bits, group=32):
    """Return a matrix as MLX quantizes it: the packed words, the scales and the offsets; and what they stand for."""
    runs = array.reshape(len(array), -1, group)
    low, high = runs.min(axis=-1, keepdims=True), runs.max(axis=-1, keepdims=True)
    scales = (high - low) / (2**bits - 1)
    whole = np.round((runs - low) / scales)
    rows = whole.reshape(len(array), -1).astype(int).tolist()
    numbers = (sum(q << bits * n for n, q in enumerate(row)) for row in rows)
    size = array.shape[1] * bits // 8
    words = np.array([np.frombuffer(one.to_bytes(size, "little"), "<u4") for one in numbers])
    return words, scales[..., 0], low[..., 0], (scales * whole + low).reshape(array.shape)


@pytest.mark.parametrize("bits", BITS)
def test_folders_of_mlx_have_the_numbers_that_their_scales_and_offsets_say(bits, tmp_path):
    arrays, packed = llama(), {}
    for name, array in arrays.items():
        if array.ndim == 2 and "mlp.up" not in name:
            stem = name.removesuffix(".weight")
            packed[name], scales, offsets, arrays[name] = affine(array, bits)
            packed |= {f"{stem}.scales": scales, f"{stem}.biases": offsets}
        else:
            packed[name] = array
    quantization = {"group_size": 32, "bits": bits, "model.layers.0.mlp.up_proj": False}
    config = LLAMA | {"quantization": quantization, "quantization_config": quantization}
    mlx = by_hand.saved(tmp_path / "mlx", config, packed)
    alike(numbers(mlx), numbers(by_hand.saved(tmp_path / "whole", LLAMA, arrays)))
    groups = ({"group_size": size} for size in (48, 96))
    others = {"mode": "mxfp4"}, {"bits": 7}, *groups, {"bits": 5 if bits != 5 else 3}
    told = "mode", "2, 3, 4, 5, 6, 8", "a multiple of 32", "no groups of 96", "groups of 32|shape"
    for other, said in zip(others, told, strict=True):
        by_hand.saved(mlx, config | {"quantization": quantization | other}, packed)
        with pytest.raises(InputError, match=said):
            numbers(mlx)


def test_windows_are_those_that_the_file_says(tmp_path):
    """No window is said by 0 (Phi 4), or by nothing (Gemma 3); which layers have one, by a list or a number."""

    def of(kind, **more):
        metadata, tensors = small(kind, **{f"{kind}.{key}": one for key, one in more.items()})
        (tmp_path / "x.gguf").write_bytes(gguf(metadata, tensors))
        return numbers(tmp_path / "x.gguf")

    window, pattern = "attention.sliding_window", "attention.sliding_window_pattern"
    alike(of("phi3", **{window: 0}), of("phi3", **{window: 64}))
    base = {"rope.freq_base": 100.0}  # of layers that see all: those with a window have another
    none, first = of("gemma3", **base, **{window: None}), of("gemma3", **base, **{pattern: [True, False]})
    alike(none, of("gemma3", **base, **{pattern: [False, False]}))
    alike(first, of("gemma3", **base, **{pattern: 2}))
    assert np.abs(first[0][0] - none[0][0]).max() > 0.01
    with pytest.raises(InputError, match="layer_types"):
        of("gemma3", **{pattern: [True]})


def test_what_would_make_other_numbers_is_refused_or_told(folder, tmp_path):
    more = {"llama.attention.sliding_window": 4} | {f"llama.some.{letter}\x1b": 2.0 for letter in "ebcad"}
    with Checkpoint(converted(folder, tmp_path / "x.gguf", **more)) as checkpoint:
        (note,) = checkpoint.model.notes
    told = "attention.sliding_window, some.a^[, some.b^[, some.c^[, some.d^[, which attn does not know"
    assert note == f"The file says {told}: the numbers may differ."
    with pytest.raises(InputError, match="mixture of experts"):
        numbers(converted(folder, tmp_path / "x.gguf", **{"llama.expert_count": 2}))
    with pytest.raises(InputError, match="8 numbers of a head are rotated, and not all"):
        numbers(converted(folder, tmp_path / "x.gguf", **{"llama.rope.dimension_count": 8}))
    more = {"rope.dimension_count": 16, "expert_count": 0, "attention.head_count_kv": [2, 2]}
    more |= {"attention.value_length": 16, "rope.scaling.finetuned": True, "tensor_data_layout": "Meta's"}
    more |= {"vocab_size": 40}
    path = converted(folder, tmp_path / "x.gguf", **{f"llama.{key}": one for key, one in more.items()})
    alike(numbers(path), numbers(folder))
    with Checkpoint(path) as checkpoint:
        assert checkpoint.model.notes == (note.replace(told, "expert_count, which attn does not know"),)
    wide = written("qwen3", tmp_path / "wide")  # whose heads have more numbers than their part of the width
    whole = converted(wide, tmp_path / "y.gguf", **{"qwen3.rope.dimension_count": 16})
    alike(numbers(whole), numbers(wide))


F32_TABLE = struct.pack("<2QI", 64, 40, 0)


def table(*shape, kind=0, offset=0):
    """Return what makes another tensor of the first one: its shape, from the last axis on, type and place."""
    made = struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)
    return lambda data: data.replace(F32_TABLE + bytes(8), made, 1)


def other(old, new):
    return lambda data: data.replace(old, new, 1)


HOSTILE = "\x1b" + "x" * 99
REFUSED = [  # what the file says, or what becomes of its bytes; and what is said of it
    (lambda data: b"GGML" + data[4:], "and no GGUF file"),
    (lambda data: data[:4] + struct.pack("<I", 9) + data[8:], "is of version 9"),
    (lambda data: data[:4] + struct.pack(">I", 3) + data[8:], "big-endian"),
    (lambda data: data[:8] + struct.pack("<Q", 1 << 60) + data[16:], "tensors"),
    (lambda data: data[:16] + struct.pack("<Q", 1 << 60) + data[24:], "keys"),
    (lambda data: data[:300], "its header ends in the middle"),
    (lambda data: data[:-100], "lies outside the file"),
    (
        {"general.architecture": HOSTILE},
        f"the architecture '^[{'x' * 58}'. It knows qwen2, qwen3, gemma, phi3, olmo2",
    ),
    (table(64, 40, kind=16), "token_embd.weight is stored as IQ2_XXS, which attn does not unpack"),
    (table(64, 40, kind=99), "is stored as type 99, which"),
    (table(0, 40), "token_embd.weight has shape (40, 0)"),
    (table(40, 64, kind=8), "sound GGUF file: token_embd.weight has shape (64, 40)"),
    (table(64, 40, offset=8), "token_embd.weight lies outside"),
    (other(b"token_embd.weight\2", b"token_emb\x1b.weight\5"), "token_emb^[.weight has 5 axes"),
    (other(b"blk.1.attn_k.weight", b"blk.0.attn_k.weight"), "two of its tensors have one name"),
    (other(b"general.architecture\x08", b"general.architecture\x0d"), "it has a value of type 13"),
    (other(struct.pack("<Q", 20), struct.pack("<Q", 65_537)), "it has a name of 65,537 bytes"),
    (lambda data: data[:16] + struct.pack("<Q", 60_000) + data[24:], "it claims 60,000 keys"),
    *(({"general.alignment": n}, f"general.alignment is {n}.") for n in (0, 12, 1 << 21)),
    ({"general.alignment": HOSTILE}, f"general.alignment is ^[{'x' * 38}."),
    ({"llama.attention.head_count": 0}, "num_attention_heads is 0"),
    ({"llama.attention.head_count_kv": [2, 1]}, "llama.attention.head_count_kv differs by layer, which attn"),
    ({"tokenizer.ggml.model": HOSTILE}, f"of the kind '^[{'x' * 38}', which attn cannot rebuild"),
    ({"tokenizer.ggml.pre": HOSTILE}, f"splits texts by '^[{'x' * 38}', which attn does not know"),
    ({"tokenizer.ggml.bos_token_id": HOSTILE}, f"it has bos_token_id ^[{'x' * 38}."),
    ({"tokenizer.ggml.bos_token_id": 10}, "bos_token_id 10"),  # of ten tokens
    ({"tokenizer.ggml.merges": [1, 2]}, "no list of merges"),
    ({"tokenizer.ggml.tokens": 3}, "no list of tokens"),
    ({"tokenizer.ggml.token_type": [1]}, "1 types"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_a_file_that_is_not_sound_or_not_known_ends_in_one_line(change, said, folder, tmp_path):
    told = change if isinstance(change, dict) else {}
    path = converted(folder, tmp_path / "x.gguf", **BYTE_PAIRS | told)
    if not told:
        data = Path(path).read_bytes()
        Path(path).write_bytes(change(data))
        assert change(data) != data
    assert said in refused("self", "ab a", "-m", path, code=65)


def test_files_with_scratches_are_read_or_refused_in_a_sentence(folder, tmp_path):
    path = converted(folder, tmp_path / "x.gguf", eight_bits, **BYTE_PAIRS)
    data, opened = Path(path).read_bytes(), 0
    header = data.index(b"output.weight") + 100
    for seed in range(150):
        (tmp_path / "x.gguf").write_bytes(mutated(data[:header], random.Random(seed)) + data[header:])
        try:
            with Checkpoint(path) as checkpoint:
                gguf_tokenizer(checkpoint.gguf)
                opened += 1
        except AttnError as error:
            assert "\n" not in str(error)
    assert 0 < opened < 150


@pytest.mark.parametrize(("kind", "rows"), [("llama", 32), ("phi3", 191)])
def test_gate_and_up_of_two_widths_or_of_an_odd_number_of_rows_for_both_are_refused(kind, rows, tmp_path):
    metadata, tensors = small(kind)
    of, _, data = tensors["blk.0.ffn_up.weight"]
    tensors["blk.0.ffn_up.weight"] = of, (rows, 64), data
    (tmp_path / "x.gguf").write_bytes(gguf(metadata, tensors))
    with pytest.raises(InputError, match="ffn_up"):
        numbers(tmp_path / "x.gguf")


def test_tokenizers_are_rebuilt_with_what_each_kind_of_them_does_by_itself(tokenizers, tmp_path):
    """Of "▁ab▁a", "▁a" is the first to be merged; without a space before it, "ab" is the second: by their scores."""
    pieces = gguf_by_hand.SENTENCE_PIECES
    unused = {"token_type": [2, 3, 3, 6, 1, 1, 1, 5, 1, 1]}  # of which "▁a" is merged all the same
    found = rebuilt(tmp_path, pieces | unused)
    told = {"ab a": [7, 5, 7], "<unk>": [0], "cc": [6, 0], "a\na": [7, 3, 4]}
    assert {text: found.encode(text).ids for text in told} == {text: [1, *ids] for text, ids in told.items()}
    assert found.decode([1, 7, 5, 7]) == " ab a"
    # "ab" as normal, unknown, control, a user's, unused and a byte: three are never cut, two of them are special.
    typed = [rebuilt(tmp_path, pieces | {"token_type": [2, 3, 3, 6, 1, 1, 1, 1, 1, n]}) for n in range(1, 7)]
    assert [one.decode(one.encode("ab").ids) for one in typed] == [" ab", "", "", "ab", " ab", " ab"]
    assert TextEncoder(str(tmp_path), "llama", found.to_str().encode()).text(7, 5) == " ab"
    bare = {"tokenizer.ggml.add_space_prefix": False, "add_bos_token": False, "eos_token_id": 2}
    assert rebuilt(tmp_path, pieces | bare).encode("ab a").ids == [9, 7]
    spelled = gguf_by_hand.WORD_PIECES | {"tokenizer.ggml.bos_token_id": 1}
    del spelled["tokenizer.ggml.cls_token_id"]  # whose older name this is
    assert rebuilt(tmp_path, spelled).encode("a bc", "Ab").ids == [1, 3, 4, 6, 2, 3, 5, 2]
    pairs = BYTE_PAIRS | {"tokenizer.ggml.merges": ["Ġ a"]}  # so that nothing makes "ab", which is a token
    del pairs["tokenizer.ggml.add_bos_token"]
    for pre, ids in {"llama-bpe": [0, 9], "qwen2": [2, 3], "gpt-2": [2, 3]}.items():
        assert rebuilt(tmp_path, pairs | {"tokenizer.ggml.pre": pre}).encode("ab").ids == ids, pre
    with pytest.raises(InputError, match="10 tokens and 9 scores"):
        rebuilt(tmp_path, gguf_by_hand.SENTENCE_PIECES | {"tokenizer.ggml.scores": [-1.0] * 9})


def test_experts_in_four_bits_are_the_numbers_that_the_bits_say(tmp_path):
    """A stack of matrices: the bytes of one lie behind those of another, in version 2 and farther apart, too."""
    metadata, tensors = small("gpt-oss")
    packing = dict(QUANTIZED.values())["MXFP4"]
    plain, rng = dict(tensors), np.random.default_rng(0)
    for name in (name for name in tensors if name.endswith("_exps.weight")):
        shape = tensors[name][1]
        blocks = rng.integers(0, 256, (math.prod(shape) // 32, 17), np.uint8)
        blocks[:, 0] = rng.integers(120, 126, len(blocks))
        tensors[name] = (39, shape, blocks.tobytes())
        plain[name] = packing.unpack(blocks.view(packing.dtype).reshape(-1)).reshape(shape)
    (tmp_path / "packed").write_bytes(gguf(metadata, tensors))
    metadata["general.alignment"] = 4096
    (tmp_path / "plain").write_bytes(gguf(metadata, plain, version=2, alignment=4096))
    alike(numbers(tmp_path / "packed"), numbers(tmp_path / "plain"))


# Beside llama.cpp's package, transformers and sentencepiece

WIDER = {"hidden_size": 64, "n_embd": 64, "intermediate_size": 96}
WIDER |= {"head_dim": 32, "shared_expert_intermediate_size": 32}


def wider(case):
    """Return a case whose rows are whole blocks."""
    case = case._replace(settings={name: WIDER.get(name, value) for name, value in case.settings.items()})
    return case._replace(settings=case.settings | own(case))


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q5_1"])
def test_every_head_attends_as_in_transformers_with_the_file_s_numbers(name, kind, transformers, tmp_path):
    import gguf as package
    import torch

    type_ = package.GGMLQuantizationType[kind]

    def quantize(array):
        return int(type_), array.shape, package.quants.quantize(array, type_).tobytes()

    case = wider(CASES[name])
    model = made(transformers, case, 3, tmp_path)
    path = converted(tmp_path, tmp_path / "x.gguf", quantize)
    family = gguf_by_hand.KINDS.get(case.family, case.family)
    for name_, parameter in model.named_parameters():  # each matrix gets the file's numbers
        called = gguf_by_hand.renamed(name_, family) or ""
        if "experts" not in name_ and gguf_by_hand.is_table(called, parameter):
            is_turned = family == "gpt2" and ".h." in name_
            M = (parameter.T if is_turned else parameter).detach().numpy()
            M = package.quants.dequantize(package.quants.quantize(M, type_), type_)
            parameter.data = torch.from_numpy(M.T.copy() if is_turned else M)
    batch = texts(TEXTS[:1], pad=0)
    with torch.no_grad():
        expected = model(torch.tensor(batch.ids), output_attentions=True)
    with Checkpoint(path) as checkpoint:
        run = checkpoint.run(batch)
        for step, attention in zip(run.steps(), expected.attentions, strict=True):
            np.testing.assert_allclose(step.attended.weights, attention.numpy(), atol=1e-5)
            same_as_by_vectors(run, step, name)
        if case.family != "bert":
            scale = float(expected.logits.abs().max())
            np.testing.assert_allclose(run.logits() / scale, expected.logits.numpy() / scale, atol=1e-5)
        assert not checkpoint.model.notes


@pytest.mark.parametrize("kind", QUANTIZED)
def test_any_block_is_unpacked_bit_for_bit_as_by_llama_cpp_s_package(kind, transformers):
    import gguf as package

    name, packing = QUANTIZED[kind]
    size = packing.dtype.itemsize
    assert package.GGMLQuantizationType(kind).name == name
    assert package.GGML_QUANT_SIZES[kind] == (packing.numbers, size)
    data = np.random.default_rng(kind).integers(0, 256, (3000, size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = package.quants.dequantize(data, package.GGMLQuantizationType(kind)).reshape(3000, -1)
        found = packing.unpack(data.view(packing.dtype).reshape(-1)).reshape(3000, -1)
    np.testing.assert_array_equal(found, expected)


LINES = [
    *("The quick brown fox jumped over the lazy dog", "don't I'll THEY'RE we've", "naïve café Ünï 東京 Москва"),
    *("12345 3.14 1,000", "two  spaces\tand a tab", "attention looks at the words that matter"),
] * 5  # fmt: skip
ODD = [
    *("a", " ", "Hello world", "don't DON'T I'LL", "12345 1 23", "tab\there", "new\nline\r\n\n x"),
    *("naïve café", "東京タワー", "Москва", "🙂🙃 x", "e\u0301 combining", "zero\u200bwidth", "a" * 200),
    *("x  y   z    ", "!!! ... -- ?", "\u2581x", "Ġx", "\x00\x07", "ﬁ ½ ² ①", "مرحبا", "नमस्ते"),
    *("_under_score_", "3.14159e-10", "\n", "  lead"),
    *("".join(random.Random(n).choices("ab cDé東1 2.,!?'\n\t🙂-", k=1 + n % 40)) for n in range(175)),
]


def vocabulary_of(made):
    """Return a tokenizer's words by number, and its merges."""
    model = json.loads(made.to_str())["model"]
    merges = [" ".join(pair) for pair in model.get("merges", [])]
    return sorted(model["vocab"], key=model["vocab"].get), merges


def rebuilt(folder, metadata):
    """Return the tokenizer of a file that has nothing else."""
    import tokenizers

    said = {f"tokenizer.ggml.{key.removeprefix('tokenizer.ggml.')}": one for key, one in metadata.items()}
    (folder / "x.gguf").write_bytes(gguf({"general.architecture": "llama"} | said, {}))
    opened = open_gguf(str(folder / "x.gguf"))
    opened.file.close()
    return tokenizers.Tokenizer.from_buffer(gguf_tokenizer(opened))


def test_texts_are_split_by_the_expressions_that_transformers_has_for_these_files(transformers):
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    known = mapping.GGUF_PRE_TOKENIZER_SPLITS
    assert [known[name] for name in ("gpt-4o", "llama3", "qwen2")] == [GPT_4O, LLAMA_3, QWEN_2]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("gpt-2", None), ("gpt-4o", GPT_4O), ("llama-bpe", LLAMA_3), ("qwen2", QWEN_2), ("smollm", "digits")],
)
def test_byte_pairs_have_the_ids_of_the_model_s_own_tokenizer(name, pattern, tmp_path):
    import tokenizers.pre_tokenizers as splits
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, processors, trainers

    own = Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
    first = {"digits": [splits.Digits(True)], None: []}
    parts = first[pattern] if pattern in first else [splits.Split(Regex(pattern), "isolated")]
    parts.append(splits.ByteLevel(add_prefix_space=False, use_regex=pattern in first))
    own.pre_tokenizer = splits.Sequence(parts)
    if name == "qwen2":
        own.normalizer = normalizers.NFC()
    own.decoder = decoders.ByteLevel()
    frames, letters = ["<|endoftext|>", "<s>"], splits.ByteLevel.alphabet()
    options = {"show_progress": False, "special_tokens": frames}
    own.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=420, initial_alphabet=letters, **options))
    own.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    words, merges = vocabulary_of(own)
    said = {"model": "gpt2", "pre": name, "tokens": words, "merges": merges, "bos_token_id": 1}
    said |= {"add_bos_token": True, "token_type": [3 if word in frames else 1 for word in words]}
    found = rebuilt(tmp_path, said)
    for text in (*ODD, "<s> a<|endoftext|>b"):
        assert found.encode(text).ids == own.encode(text).ids, repr(text)


def test_word_pieces_have_the_ids_of_bert_s_tokenizer(tmp_path):
    from tokenizers import BertWordPieceTokenizer

    own = BertWordPieceTokenizer(lowercase=True)
    own.train_from_iterator(LINES, vocab_size=300, show_progress=False)
    words, _ = vocabulary_of(own)
    own = BertWordPieceTokenizer({word: n for n, word in enumerate(words)}, lowercase=True)
    spelled = [word[2:] if word.startswith("##") else f"\u2581{word}" for word in words]
    spelled = [word if word in by_hand.FRAMES else made for word, made in zip(words, spelled, strict=True)]
    ends = {"cls_token_id": words.index("[CLS]"), "seperator_token_id": words.index("[SEP]")}
    kinds = [3 if word in by_hand.FRAMES else 1 for word in words]
    found = rebuilt(tmp_path, {"model": "bert", "tokens": spelled, "token_type": kinds} | ends)
    for text in ODD:
        assert found.encode(text).ids == own.encode(text).ids, repr(text)
        assert found.encode(text, "a b").type_ids == own.encode(text, "a b").type_ids


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_pieces_have_the_ids_of_the_library(prefix, transformers, tmp_path):
    import io

    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=written, vocab_size=400, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, minloglevel=2, split_digits=True, allow_whitespace_only_pieces=True,
        hard_vocab_limit=False,
    )  # fmt: skip
    own = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    count = own.get_piece_size()
    kinds = ((own.is_unknown, 2), (own.is_control, 3), (own.is_byte, 6), (own.is_unused, 5))
    said = {
        "model": "llama", "add_space_prefix": prefix, "tokens": [own.id_to_piece(n) for n in range(count)],
        "scores": [own.get_score(n) for n in range(count)], "bos_token_id": 1,
        "token_type": [next((k for is_, k in kinds if is_(n)), 1) for n in range(count)],
    }  # fmt: skip
    found = rebuilt(tmp_path, said)
    for text in ODD:
        assert found.encode(text).ids == [1, *own.encode(text)], repr(text)
