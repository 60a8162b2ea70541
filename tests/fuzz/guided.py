"""Fuzzing led by coverage: `python -m tests.fuzz.guided [--reader NAME] [--runs N]` (pip install atheris).

A reader that takes a stranger's file joins by a line in TARGETS. What is found is kept in tests/fuzz/found/READER,
with which every later campaign begins.
"""

import hashlib
import importlib.util
import json
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import typer

from attn_cli.errors import AttnError
from tests.fuzz.mutate import IN_MEMORY, peak, place

# Of attn no more is imported here: what is loaded is not instrumented.
FOUND = Path(__file__).with_name("found")
SHIPPED = [path.read_bytes() for path in sorted(Path(__file__).parents[2].glob("data/examples/*.json"))]
PIECE = 128  # bytes that the readers of vectors take for a large file
MOST_MEMORY = 64 << 20  # beside the file
SECONDS = 2  # a case
LONGEST = 4096  # bytes of a file

Reader = Callable[[str, bytes], object]


class Target(NamedTuple):
    """A reader: what of attn is instrumented, the function that makes the reader, and sound files to begin with."""

    package: str
    reader: Callable[[], Reader]
    seeds: Callable[[], list[bytes]]


def _vectors() -> Reader:
    from attn_cli.vectors import detect
    from attn_cli.vectors.open_vectors import FileVectors
    from tests.fuzz.cases import check_found, check_rows, scale
    from tests.fuzz.seeds import ABSENT, KNOWN

    words = (*KNOWN, ABSENT)
    scale(PIECE)

    def read(path: str, data: bytes) -> None:
        vectors = detect.open_file(path)
        check_found(vectors.find(words), words, vectors)
        if isinstance(vectors, FileVectors):
            vectors.indexed()
            check_rows(vectors, vectors.find(words))

    return read


def _of(module: str, name: str, seeds: Callable[[], list[bytes]], *more: object, of_bytes=False) -> Target:
    """Return a reader that is called with a path, or bytes; it is loaded when it is to be instrumented."""

    def load() -> Reader:
        read = getattr(importlib.import_module(f"attn_cli.{module}"), name)
        return lambda path, data: read(data if of_bytes else path, *more)

    return Target(module.partition(".")[0], load, seeds)


def _printed() -> list[bytes]:
    from tests.shell import attn

    lines = ("self ab --steps", "masked ab", "cross a bc --top 1", "self ab --heads 2 --head all")
    more = ("--tokenizer", "characters", "-e", "random", "--dim", "2", "-f", "jsonl")
    found = [attn(*line.split(), *more).out.encode() for line in lines]
    assert all(found)
    return found


def _arrays() -> list[bytes]:
    import numpy as np

    from tests.fuzz.seeds import npy, zipped

    given = {name: npy(np.eye(2)) for name in ("Q.npy", "K.npy", "V.npy")}
    named = zipped(given | {"tokens.npy": npy(np.array(["a", "b"]))})
    return [*(npy(np.eye(3, dtype=dtype)[None]) for dtype in ("f4", "f8", "i8")), named]


def _models() -> list[bytes]:
    from tests.small_models import arrays, table, write

    with tempfile.NamedTemporaryFile() as file:
        of = (arrays(layers=layers) for layers in (1, 2))
        return [Path(write(file.name, made, table(), ["a", "b", "c"])).read_bytes() for made in of]


BETWEEN = b"\n----\n"  # the files of a checkpoint in one file: config.json, a safetensors file, an index


def _checkpoint() -> Reader:
    from attn_cli.models.checkpoints.run import Checkpoint, texts

    def read(path: str, data: bytes) -> None:
        config, weights, index = [*data.split(BETWEEN, 2), b"", b""][:3]
        folder = Path(path).with_name("checkpoint")
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_bytes(config)
        (folder / "model.safetensors").unlink(missing_ok=True)
        (folder / ("one.safetensors" if index else "model.safetensors")).write_bytes(weights)
        (folder / "model.safetensors.index.json").write_bytes(index)
        with Checkpoint(str(folder)) as checkpoint:
            checkpoint.run(texts([[1, 0]])).logits()

    return read


def _checkpoints() -> list[bytes]:
    from tests.models.checkpoints import by_hand

    arrays = by_hand.gpt2(vocabulary=3, places=3, d=2, layers=1)
    index = json.dumps({"weight_map": dict.fromkeys(arrays, "one.safetensors")}).encode()
    config = json.dumps(by_hand.GPT2 | {"n_embd": 2, "n_layer": 1, "n_head": 1}).encode()
    gpt2 = [config, by_hand.safetensors(arrays)]
    sizes = {"hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1}
    bert = json.dumps(by_hand.BERT | sizes).encode()
    other = by_hand.safetensors(by_hand.bert(vocabulary=3, places=3, d=2, layers=1))
    return [BETWEEN.join(files) for files in (gpt2, [*gpt2, index], [bert, other])]


KEYS = """
Q K V X W_q W_k W_v W_o b_q b_k b_v b_o mask heads layout tokens context score scale weights scores scaled_scores
masked_scores position_scores output query_tokens key_tokens links condensed schema attn/1 kind name null true 1e308
data_offsets __metadata__ dtype shape F16 F32 format facts temperature self
"""  # hardly spelled by chance
TREEBANK = b"# a\n1\tcats\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n\n"
SHEETS = [b"a,b\n1,2\n3,.5\n", b'"x";"1,5"\n2;3\n']
CONFIG = b'score = "dot"\ntop = 3\n[self]\nmask = "causal"\ntemperature = 0.5\nfull = true\n'
TARGETS: dict[str, Target] = {
    "vectors": Target("vectors", _vectors, lambda: importlib.import_module("tests.fuzz.seeds").EVERY),
    "matrices": _of("inputs.matrices", "read_given", lambda: SHIPPED + _printed() + _arrays()),
    "answers": _of("teach.submission", "read_submission", lambda: SHIPPED + _printed()),
    "saved weights": _of(
        "inputs.saved_weights", "read_saved", lambda: _printed() + _arrays(), "x", of_bytes=True
    ),
    "learned model": _of("models.model_file", "read_model", _models),
    "checkpoint": Target("models.checkpoints", _checkpoint, _checkpoints),
    "configuration": _of("cli.config_files", "read_config", lambda: [CONFIG], ("self", "masked")),
    "treebank": _of("learn.treebank", "read_treebank", lambda: [TREEBANK]),
    "csv": _of("inputs.csv_matrix", "read_sheet", lambda: SHEETS),
}


class Guard:
    """Runs a reader on one file after the other, and keeps those that crash it or take too much memory."""

    def __init__(self, found: Path, read: Reader, folder: Path) -> None:
        self.found, self.read, self.path = found, read, folder / "fuzz.dat"
        self.told: set[str] = set()
        self.peak = peak()
        self.warm = 500  # cases in which modules are loaded and caches are filled

    def __call__(self, data: bytes) -> None:
        self.path.write_bytes(data)
        before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        try:
            self.read(str(self.path), data)
        except AttnError:
            pass
        except Exception as error:
            self.keep(data, place(error))
        self.warm -= 1
        was, self.peak = self.peak, peak()
        if self.peak > was and self.peak - before > MOST_MEMORY + len(data) and self.warm < 0:
            self.keep(data, f"memory {(self.peak - before) >> 20} MB")

    def keep(self, data: bytes, where: str) -> None:
        if where not in self.told:
            self.told.add(where)
            path = self.found / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            print(f"CRASH {where}: {path}", flush=True)


def fuzz(name: str, runs: int, seed: int) -> None:
    """Fuzz one reader in this process; the fuzzer ends it."""
    import atheris

    target, found = TARGETS[name], FOUND / name.replace(" ", "-")
    with atheris.instrument_imports(include=[f"attn_cli.{target.package}", "attn_cli.io"]):
        read = target.reader()
    found.mkdir(parents=True, exist_ok=True)
    seeds = target.seeds() + [path.read_bytes() for path in sorted(found.glob("*"))]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the fuzzer has a clock of its own
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as made:
        folder, corpus = Path(made), Path(made, "corpus")
        corpus.mkdir()
        for number, data in enumerate(seeds):
            (corpus / str(number)).write_bytes(data)
        (folder / "words").write_text("".join(f'"{key}"\n' for key in KEYS.split()))
        options = {
            "runs": runs, "seed": seed, "max_len": max(LONGEST, *map(len, seeds)), "timeout": SECONDS,
            "rss_limit_mb": 2048, "dict": folder / "words", "artifact_prefix": f"{found}/",
        }  # fmt: skip
        given = [f"-{option}={value}" for option, value in options.items()]
        atheris.Setup([sys.argv[0], *given, str(corpus)], Guard(found, read, folder))
        atheris.Fuzz()


def main(reader: str = "", runs: int = 400_000, seed: int = 14) -> None:
    """Fuzz one reader in this process, or each in a process of its own."""
    if importlib.util.find_spec("atheris") is None:
        sys.exit("Install it first: pip install atheris")
    if reader:
        fuzz(reader, runs, seed)
    failed = 0
    for name in TARGETS:
        options = [f"--reader={name}", f"--runs={runs}", f"--seed={seed}"]
        command = [sys.executable, "-m", "tests.fuzz.guided", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        print(f"{name}: exit code {done.returncode} {done.stdout}", flush=True)
        failed += bool(done.returncode or done.stdout)
    print(f"{failed} of {len(TARGETS)} readers failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    typer.run(main)
