"""The commands that write: what each finds, what it leaves, and how that is looked at."""

import gzip
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests import FOLDERS
from tests.faults.forked import run
from tests.learn.test_learn import little_language, little_vectors
from tests.models.checkpoints.by_hand import small_gpt2
from tests.parsed import conllu
from tests.vectors.test_download import NAME

FOX = "'The quick brown fox jumped over the lazy dog'"
State = dict[str, bytes]


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which everything that attn keeps lies beside `folder`."""
    home = folder.parent / "home"
    kept = {variable: str(home / name) for variable, name in FOLDERS.items()}
    return kept | {"HOME": str(home), "SHELL": "/bin/bash", "ATTN_MIRROR": os.environ.get("ATTN_MIRROR", "")}


def files(folder: Path) -> State:
    """Return what lies in a folder, unfinished files left out."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".part")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def unfinished(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*.part"))


class Command(NamedTuple):
    """One command line: what is there before it beside INPUTS, and what is looked at after it."""

    name: str
    line: str
    observe: Callable[[Path], State] = files
    prepare: Callable[[Path], None] = lambda folder: None
    old: str = ""  # a file that is there before
    needs: str = ""  # an extra, without which there is nothing to spoil
    slow: bool = False

    @property
    def args(self) -> list[str]:
        return shlex.split(self.line)


def vector_lines(count: int, dim: int, scale: float) -> bytes:
    rows = (" ".join(f"{scale * (i + 1) * (k + 2) % 7 - 3:.4f}" for k in range(dim)) for i in range(count))
    return "".join(f"w{i} {row}\n" for i, row in enumerate(rows)).encode()


INPUTS = {
    "m.json": b'{"Q": [[1, 0]], "K": [[1, 0], [0, 1]], "V": [[1], [2]]}',
    "a.json": b'{"scores": [[1, 0]]}',
    "w.json": b'{"weights": [[0.25, 0.75], [1, 0]], "tokens": ["a", "b"]}',
    "lines.txt": b"the cat sat\n" * 20,
    "text.txt": b"the cat sat on the mat and the dog sat on the cat\n" * 40,
    "new.txt": vector_lines(400, 8, 0.7),
    "new.txt.gz": gzip.compress(vector_lines(400, 8, 0.7), mtime=0),
    "older.txt.gz": gzip.compress(vector_lines(300, 8, 0.3), mtime=0),
    "little.txt": little_vectors().encode(),
    "little.conllu": conllu(*little_language(20, 0)).encode(),
}


def _after(*args: str) -> Callable[[Path], None]:
    """Return what runs a command before: an older set of the same name, another exercise."""

    def prepare(folder: Path) -> None:
        done = run(args, folder, environment(folder))
        assert done.code == 0, done.err

    return prepare


def _answer(name: str) -> Callable[[Path], State]:
    """Return what tells what a name stands for: the vectors of some words, as a user reads them."""

    def observe(folder: Path) -> State:
        done = run(("vectors", "nearest", "w3", "-e", name, "-f", "json"), folder, environment(folder))
        return {"code": str(done.code).encode(), "answer": done.out if done.code == 0 else b""}

    return observe


def _profile(folder: Path) -> None:
    (folder.parent / "home" / ".bashrc").write_bytes(b"# caf\xe9\nalias ll='ls -l'\n")


def _profile_now(folder: Path) -> State:
    """Return the user's profile, and what it loads; a script that nothing loads yet is not a change."""
    home = folder.parent / "home"
    state = {path.name: path.read_bytes() for path in home.glob(".*rc")}
    scripts = {".bashrc": ".bash_completions/attn.sh", ".zshrc": ".zfunc/_attn"}
    for profile, script in scripts.items():
        if b"attn.sh" in state.get(profile, b"") or b".zfunc" in state.get(profile, b""):
            state[script] = (home / script).read_bytes()
    if (fish := home / ".config/fish/completions/attn.fish").exists():
        state[fish.name] = fish.read_bytes()
    return state


def _sheet_now(folder: Path) -> State:
    """Return the exercise that is there: nothing where its files are not said to belong together."""
    sheet = folder / "sheet"
    if not (sheet / "exercise.json").exists():
        return {}
    state = files(sheet)
    for name, checksum in json.loads(state["exercise.json"])["files"].items():
        assert hashlib.sha256(state[name]).hexdigest() == checksum, f"{name} is of another exercise"
    return state


def _parts(folder: Path) -> State:
    """Return the parts that are there: nothing where the manifest does not say that they are all."""
    manifest = folder / "parts" / "manifest.json"
    told = json.loads(manifest.read_text()) if manifest.exists() else {"complete": False}
    found = {}
    for part in told["parts"] if told["complete"] else ():
        found[part["file"]] = (folder / "parts" / part["file"]).read_bytes()
        assert hashlib.blake2b(found[part["file"]], digest_size=16).hexdigest() == part["blake2b"]
    return found


MINE = _answer("mine")
OLDER = _after("vectors", "import", "older.txt.gz", "--name", "mine")
ALL = (
    Command("json, new", f"self {FOX} -f json -o x.json"),
    Command("json, old", f"self {FOX} -o x.json", old="x.json"),
    Command("npy, old", f"self {FOX} -e random -o x.npy", old="x.npy"),
    Command("html, old", f"explain {FOX} -o x.html", old="x.html"),
    Command("svg, new", f"masked {FOX} -e random -o x.svg"),
    Command("csv, old", f"cross {FOX} 'the dog' -o x.csv", old="x.csv"),
    Command("comparison", f"compare {FOX} --vary score=scaled,dot -o x.md", old="x.md"),
    Command("lookup", "lookup colour brand=Porsche color=black -o x.tex"),
    Command("example", "example coffee -o x.html", old="x.html"),
    Command("page", f"page {FOX} --words 20 -o x.html", old="x.html"),
    Command("neighbours", "vectors nearest cat -f json"),
    Command("script", f"masked {FOX} -f code:numpy -o x.py", old="x.py"),
    Command("matrices", "compute m.json -o x.json"),
    Command("verdict", "check a.json --expect m.json -o v.json"),
    Command("slide", f"explain {FOX} -o x.tex", old="x.tex"),
    Command("settings", "config -f json"),
    Command("drawing", "show w.json -o x.svg"),
    Command("neighbours, old", "vectors nearest cat -o x.json", old="x.json"),
    Command("dictionary", "example dictionary -o x.md"),
    Command("batch, old", "batch lines.txt -o x.jsonl", old="x.jsonl"),
    Command("batch into a folder", "batch lines.txt -e random -o parts/", _parts),
    Command("batch, parquet, new", "batch lines.txt -e random -o x.parquet", needs="pyarrow"),
    Command("batch, parquet, old", "batch lines.txt -e random -o x.parquet", old="x.parquet", needs="pyarrow"),
    Command("batch, parquet parts", "batch lines.txt -e random -f parquet -o parts/", _parts, needs="pyarrow"),
    Command("batch, npz parts", "batch lines.txt -e random -f npz -o parts/", _parts, needs="pyarrow"),
    Command("standard output", f"self {FOX} -e random -f json"),
    Command("table", f"explain {FOX}"),
    Command("batch to a pipe", "batch lines.txt -e random"),
    Command("heads, old", "heads dabca -m gpt2 -o x.html", old="x.html", needs="tokenizers"),
    Command("heads, to a pipe", "heads dabca -m gpt2", needs="tokenizers"),
    Command("model, new", "self dabca -m gpt2 -o x.json", needs="tokenizers"),
    Command("model, next words", "masked dabca -m gpt2 --next 3 -o x.md", old="x.md", needs="tokenizers"),
    Command("help", "self --help"),
    Command("exercise, new", "exercise --seed 8 -o sheet", _sheet_now),
    Command("exercise, old", "exercise --seed 8 -o sheet --force", _sheet_now,
            _after("exercise", "--seed", "7", "-o", "sheet")),
    Command("import, new", "vectors import new.txt --name mine", MINE),
    Command("import packed, new", "vectors import new.txt.gz --name mine", MINE),
    Command("import packed, old", "vectors import new.txt.gz --name mine", MINE, OLDER),
    Command("remove", "vectors remove mine", MINE, OLDER),
    Command("download", f"vectors download {NAME}", _answer(NAME)),
    Command("export text", "vectors export new.txt -o x.txt", old="x.txt"),
    Command("export binary", "vectors export new.txt -o x.bin"),
    Command("export table", "vectors export new.txt -o x.safetensors"),
    *(Command(f"completion, {name}", f"--install-completion {name}", _profile_now, _profile)
      for name in ("bash", "zsh", "fish")),
    Command("train vectors", "vectors train text.txt -o x.safetensors --dim 4 --epochs 1 --min-count 1", slow=True),
    Command("train heads", "learn train little.conllu -e little.txt -o x.safetensors --epochs 1 --relations subject",
            old="x.safetensors", slow=True),
)  # fmt: skip
COMMANDS = [command for command in ALL if not command.needs or find_spec(command.needs)]


def laid(command: Command, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    folder = place / "here"
    folder.mkdir(parents=True)
    (place / "home").mkdir()
    for name, data in (INPUTS | ({command.old: b"old\n"} if command.old else {})).items():
        (folder / name).write_bytes(data)
    small_gpt2(folder / "gpt2")
    command.prepare(folder)
    return folder


def copied(template: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place, symlinks=True)
    return place / "here"
