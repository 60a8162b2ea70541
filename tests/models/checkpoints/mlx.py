"""Matrices that MLX itself quantized, as attn unpacks them: `python -m tests.models.checkpoints.mlx`.

For each number of bits the largest difference from mlx.core.dequantize is printed, over sizes of groups and types of
scales. It needs MLX (`pip install mlx`, on Linux `mlx[cpu]`), and of attn's own needs NumPy and threadpoolctl.
"""

import itertools
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from attn_cli.models.checkpoints.config import BITS
from attn_cli.models.checkpoints.run import Checkpoint, texts
from tests.models.checkpoints.gguf_by_hand import LLAMA, llama


def saved(folder: Path, bits: int, group: int, dtype: str) -> dict[str, np.ndarray]:
    """Write a model as mlx-lm does, every matrix quantized, and return what MLX says its matrices are in float32."""
    import mlx.core as mx

    packed, whole = {}, {}
    for name, array in llama(d=128, wide=256).items():
        given = mx.array(array).astype(getattr(mx, dtype))
        if array.ndim < 2:
            packed[name], whole[name] = given, np.array(given.astype(mx.float32))
            continue
        stem = name.removesuffix(".weight")
        words, scales, offsets = mx.quantize(given, group_size=group, bits=bits)
        packed |= {name: words, f"{stem}.scales": scales, f"{stem}.biases": offsets}
        parts = words, scales.astype(mx.float32), offsets.astype(mx.float32)
        whole[name] = np.array(mx.dequantize(*parts, group_size=group, bits=bits))
    mx.save_safetensors(str(folder / "model.safetensors"), packed, {"format": "mlx"})
    own = {"group_size": group, "bits": bits, "mode": "affine"}
    config = LLAMA | {"hidden_size": 128, "intermediate_size": 256}
    config |= dict.fromkeys(("quantization", "quantization_config"), own)
    (folder / "config.json").write_text(json.dumps(config))
    return whole


def largest_difference(bits: int, group: int, dtype: str) -> float:
    """Return how far any number of such a model is from MLX's, as a share of the largest of its matrix."""
    with TemporaryDirectory() as folder:
        whole = saved(Path(folder), bits, group, dtype)
        with Checkpoint(folder) as checkpoint:
            assert np.isfinite(checkpoint.run(texts([[1, 2, 3]])).logits()).all()
            found = {name: checkpoint.weights.read(name, *array.shape) for name, array in whole.items()}
    return max(float(abs(found[name] - array).max() / abs(array).max()) for name, array in whole.items())


def main() -> int:
    """Print the largest difference of each number of bits; the exit code is 1 where there is any."""
    worst = 0.0
    for bits in BITS:
        kinds = itertools.product((32, 64, 128), ("float32", "float16", "bfloat16"))
        far = max(largest_difference(bits, *kind) for kind in kinds)
        print(f"{bits} bits: {far:.0e}")
        worst = max(worst, far)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
