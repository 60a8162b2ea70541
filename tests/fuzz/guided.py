"""Fuzzing led by coverage: `python -m tests.fuzz.guided [SECONDS]`; it needs atheris, which is no dependency."""

import importlib.util
import signal
import sys
import tempfile
from pathlib import Path

from tests.fuzz.place import place

PIECE = 128


def tell(data: bytes, error: Exception) -> None:
    """Print a crash of a place where there was none yet, and keep what led to it."""
    found = place(error)
    if found not in _TOLD:
        _TOLD.add(found)
        kept = Path(tempfile.gettempdir()) / f"attn-guided-{len(_TOLD)}"
        kept.write_bytes(data)
        print(f"CRASH {found}: {kept}", flush=True)


_TOLD: set[str] = set()


def main() -> int:
    if importlib.util.find_spec("atheris") is None:
        print("Install it first: pip install atheris", file=sys.stderr)
        return 2
    import atheris

    with atheris.instrument_imports(include=["attn_cli.vectors", "attn_cli.io.array_files"]):
        from attn_cli.errors import AttnError
        from attn_cli.vectors.formats import detect as formats
        from attn_cli.vectors.formats.on_disk import FileVectors
    from tests.fuzz.cases import Bench, check_found, check_rows
    from tests.fuzz.scaled import scale
    from tests.fuzz.seeds import ABSENT, EVERY, KNOWN, MAIN

    bench, words = Bench(), (*KNOWN, ABSENT)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the fuzzer has a clock of its own

    def one(data: bytes) -> None:
        path = bench.put({MAIN: data})
        try:
            vectors = formats.open_file(path)
            check_found(vectors.find(words), words, vectors)
            if isinstance(vectors, FileVectors):
                vectors.indexed()
                check_rows(vectors, vectors.find(words))
        except AttnError:
            return
        except Exception as error:  # told once for each place; the fuzzer goes on
            tell(data, error)

    scale(PIECE)
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(EVERY):
            (Path(corpus) / str(number)).write_bytes(data)
        seconds = sys.argv[1] if len(sys.argv) > 1 else "60"
        told = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-print_final_stats=1"]
        atheris.Setup(
            [sys.argv[0], *told, f"-artifact_prefix={tempfile.gettempdir()}/attn-guided-", corpus], one
        )
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
