"""The commands that write: what each finds, what it leaves, and how that is looked at."""

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.faults.forked import run
from tests.learn.test_learn import little_language, little_vectors
from tests.models.checkpoints.by_hand import GPT2, gpt2, saved
from tests.parsed import conllu
from tests.vectors.test_download import NAME

WORDS = "The quick brown fox jumped over the lazy dog"
State = dict[str, bytes]


class Command(NamedTuple):
    """One command line: what is there before it, and what is looked at after it."""

    name: str
    args: tuple[str, ...]
    prepare: Callable[[Path], None]
    observe: Callable[[Path], State]
    slow: bool = False


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which everything that attn keeps lies beside `folder`."""
    home = folder.parent / "home"
    return {
        "ATTN_MIRROR": os.environ.get("ATTN_MIRROR", ""),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "GENSIM_DATA_DIR": str(home / "gensim-data"),
        "SHELL": "/bin/bash",
    }


def files(folder: Path) -> State:
    """Return what lies in a folder, unfinished files left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".part")
    }


def unfinished(folder: Path) -> list[str]:
    """Return the unfinished files in a folder and in the home beside it."""
    there = [*folder.parent.rglob("*.part"), *folder.parent.rglob(".*.part")]
    return sorted({str(path.relative_to(folder.parent)) for path in there})


def _nothing(folder: Path) -> None:
    pass


def _old(*names: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes(b"old\n")

    return prepare


def _both(*prepared: Callable[[Path], None]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        for one in prepared:
            one(folder)

    return prepare


def vector_lines(count: int, dim: int, scale: float) -> bytes:
    rows = (" ".join(f"{scale * (i + 1) * (k + 2) % 7 - 3:.4f}" for k in range(dim)) for i in range(count))
    return "".join(f"w{i} {row}\n" for i, row in enumerate(rows)).encode()


def _packed(folder: Path) -> None:
    (folder / "new.txt.gz").write_bytes(gzip.compress(vector_lines(400, 8, 0.7), mtime=0))


def _plain(folder: Path) -> None:
    (folder / "new.txt").write_bytes(vector_lines(400, 8, 0.7))


def _matrices(folder: Path) -> None:
    (folder / "m.json").write_text('{"Q": [[1, 0]], "K": [[1, 0], [0, 1]], "V": [[1], [2]]}')


def _model(folder: Path) -> None:
    """Write a GPT-2 of six letters."""
    made = Path(saved(folder / "gpt2", GPT2, gpt2()))
    (made / "vocab.json").write_text(
        json.dumps({word: n for n, word in enumerate(["a", "b", "c", "d", "Ġa", "Ġb"])})
    )
    (made / "merges.txt").write_text("#version: 0.2\n")


def _answered(folder: Path) -> None:
    _matrices(folder)
    (folder / "a.json").write_text('{"scores": [[1, 0]]}')


def _saved(folder: Path) -> None:
    (folder / "w.json").write_text('{"weights": [[0.25, 0.75], [1, 0]], "tokens": ["a", "b"]}')


def _imported(folder: Path) -> None:
    """Import an older set under the name, from a packed file."""
    _packed(folder)
    old = folder.parent / "older.txt.gz"
    old.write_bytes(gzip.compress(vector_lines(300, 8, 0.3), mtime=0))
    done = run(("vectors", "import", str(old), "--name", "mine"), folder, environment(folder))
    assert done.code == 0, done.err


def _answer(folder: Path) -> State:
    """Return what the name stands for: the vectors of some words, as a user reads them."""
    done = run(("vectors", "nearest", "w3", "-e", "mine", "-f", "json"), folder, environment(folder))
    return {"code": str(done.code).encode(), "answer": done.out if done.code == 0 else b""}


def _downloaded(folder: Path) -> State:
    """Return what the downloaded set answers."""
    done = run(("vectors", "nearest", "w3", "-e", NAME, "-f", "json"), folder, environment(folder))
    return {"code": str(done.code).encode(), "answer": done.out if done.code == 0 else b""}


def _exercise_there(folder: Path) -> None:
    done = run(("exercise", "--seed", "7", "-o", "sheet"), folder, environment(folder))
    assert done.code == 0, done.err


def _profile(folder: Path) -> None:
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    (home / ".bashrc").write_bytes(b"# caf\xe9\nalias ll='ls -l'\n")


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
    sums = json.loads((sheet / "exercise.json").read_text())["files"]
    state = files(sheet)
    for name, checksum in sums.items():
        assert hashlib.sha256(state[name]).hexdigest() == checksum, f"{name} is of another exercise"
    return state


def _corpus(folder: Path) -> None:
    (folder / "text.txt").write_text("the cat sat on the mat and the dog sat on the cat\n" * 40)


def _treebank(folder: Path) -> None:
    (folder / "little.txt").write_text(little_vectors())
    (folder / "little.conllu").write_text(conllu(*little_language(20, 0)))


def _lines(folder: Path) -> None:
    (folder / "lines.txt").write_text("the cat sat\n" * 20)


def _parts(folder: Path) -> State:
    """Return the parts that are there: nothing where the manifest does not say that they are all."""
    manifest = folder / "parts" / "manifest.json"
    if not manifest.exists() or not json.loads(manifest.read_text())["complete"]:
        return {}
    found = {}
    for part in json.loads(manifest.read_text())["parts"]:
        found[part["file"]] = (folder / "parts" / part["file"]).read_bytes()
        assert hashlib.blake2b(found[part["file"]], digest_size=16).hexdigest() == part["blake2b"]
    return found


# They need the extra batch; where it is not installed there is nothing to spoil.
BATCH_TABLES = () if find_spec("pyarrow") is None else (
    Command("batch, parquet, new", ("batch", "lines.txt", "-e", "random", "-o", "x.parquet"), _lines, files),
    Command("batch, parquet, old", ("batch", "lines.txt", "-e", "random", "-o", "x.parquet"),
            _both(_lines, _old("x.parquet")), files),
    Command("batch, parquet parts", ("batch", "lines.txt", "-e", "random", "-f", "parquet", "-o", "parts/"),
            _lines, _parts),
    Command("batch, npz parts", ("batch", "lines.txt", "-e", "random", "-f", "npz", "-o", "parts/"), _lines, _parts),
)  # fmt: skip
# They need the extra models; where it is not installed there is nothing to spoil.
MODELS = () if find_spec("tokenizers") is None else (
    Command("heads, old", ("heads", "dabca", "-m", "gpt2", "-o", "x.html"), _both(_model, _old("x.html")), files),
    Command("heads, to a pipe", ("heads", "dabca", "-m", "gpt2"), _model, files),
    Command("model, new", ("self", "dabca", "-m", "gpt2", "-o", "x.json"), _model, files),
    Command("model, next words", ("masked", "dabca", "-m", "gpt2", "--next", "3", "-o", "x.md"),
            _both(_model, _old("x.md")), files),
)  # fmt: skip
COMMANDS = (
    Command("json, new", ("self", WORDS, "-f", "json", "-o", "x.json"), _nothing, files),
    Command("json, old", ("self", WORDS, "-o", "x.json"), _old("x.json"), files),
    Command("npy, old", ("self", WORDS, "-e", "random", "-o", "x.npy"), _old("x.npy"), files),
    Command("html, old", ("explain", WORDS, "-o", "x.html"), _old("x.html"), files),
    Command("svg, new", ("masked", WORDS, "-e", "random", "-o", "x.svg"), _nothing, files),
    Command("csv, old", ("cross", WORDS, "the dog", "-o", "x.csv"), _old("x.csv"), files),
    Command("comparison", ("compare", WORDS, "--vary", "score=scaled,dot", "-o", "x.md"), _old("x.md"), files),
    Command("lookup", ("lookup", "colour", "brand=Porsche", "color=black", "-o", "x.tex"), _nothing, files),
    Command("example", ("example", "coffee", "-o", "x.html"), _old("x.html"), files),
    Command("page", ("page", WORDS, "--words", "20", "-o", "x.html"), _old("x.html"), files),
    Command("neighbours", ("vectors", "nearest", "cat", "-f", "json"), _nothing, files),
    Command("script", ("masked", WORDS, "-f", "code:numpy", "-o", "x.py"), _old("x.py"), files),
    Command("matrices", ("compute", "m.json", "-o", "x.json"), _matrices, files),
    Command("verdict", ("check", "a.json", "--expect", "m.json", "-o", "v.json"), _answered, files),
    Command("slide", ("explain", WORDS, "-o", "x.tex"), _old("x.tex"), files),
    Command("settings", ("config", "-f", "json"), _nothing, files),
    Command("drawing", ("show", "w.json", "-o", "x.svg"), _saved, files),
    Command("neighbours, old", ("vectors", "nearest", "cat", "-o", "x.json"), _old("x.json"), files),
    Command("dictionary", ("example", "dictionary", "-o", "x.md"), _nothing, files),
    Command("batch, old", ("batch", "lines.txt", "-o", "x.jsonl"), _both(_lines, _old("x.jsonl")), files),
    Command("batch into a folder", ("batch", "lines.txt", "-e", "random", "-o", "parts/"), _lines, _parts),
    *BATCH_TABLES,
    Command("standard output", ("self", WORDS, "-e", "random", "-f", "json"), _nothing, files),
    Command("table", ("explain", WORDS), _nothing, files),
    Command("batch to a pipe", ("batch", "lines.txt", "-e", "random"), _lines, files),
    *MODELS,
    Command("help", ("self", "--help"), _nothing, files),
    Command("exercise, new", ("exercise", "--seed", "8", "-o", "sheet"), _nothing, _sheet_now),
    Command("exercise, old", ("exercise", "--seed", "8", "-o", "sheet", "--force"), _exercise_there, _sheet_now),
    Command("import, new", ("vectors", "import", "new.txt", "--name", "mine"), _plain, _answer),
    Command("import packed, new", ("vectors", "import", "new.txt.gz", "--name", "mine"), _packed, _answer),
    Command("import packed, old", ("vectors", "import", "new.txt.gz", "--name", "mine"), _imported, _answer),
    Command("remove", ("vectors", "remove", "mine"), _imported, _answer),
    Command("download", ("vectors", "download", NAME), _nothing, _downloaded),
    Command("export text", ("vectors", "export", "new.txt", "-o", "x.txt"), _both(_plain, _old("x.txt")), files),
    Command("export binary", ("vectors", "export", "new.txt", "-o", "x.bin"), _plain, files),
    Command("export table", ("vectors", "export", "new.txt", "-o", "x.safetensors"), _plain, files),
    Command("completion, bash", ("--install-completion", "bash"), _profile, _profile_now),
    Command("completion, zsh", ("--install-completion", "zsh"), _profile, _profile_now),
    Command("completion, fish", ("--install-completion", "fish"), _profile, _profile_now),
    Command(
        "train vectors",
        ("vectors", "train", "text.txt", "-o", "x.safetensors", "--dim", "4", "--epochs", "1", "--min-count", "1"),
        _corpus, files, slow=True,
    ),
    Command(
        "train heads",
        ("learn", "train", "little.conllu", "-e", "little.txt", "-o", "x.safetensors", "--epochs", "1",
         "--relations", "subject"),
        _both(_treebank, _old("x.safetensors")), files, slow=True,
    ),
)  # fmt: skip


def laid(command: Command, place: Path) -> Path:
    """Lay out an empty place for a command, and return the folder that it runs in."""
    shutil.rmtree(place, ignore_errors=True)
    folder = place / "here"
    folder.mkdir(parents=True)
    (place / "home").mkdir()
    command.prepare(folder)
    return folder


def copied(template: Path, place: Path) -> Path:
    """Copy a laid place, and return the folder in it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place, symlinks=True)
    return place / os.path.basename("here")
