"""The separate process of a tokenizer. It is run as a file, and imports the library and Python's own modules alone.

A question is a line of JSON, and so is its answer. Memory and time are limited where the system has such limits; the
process that asks has a limit of time of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

GROWTH = 64  # tokens that a character may make; those of sound tokenizers make eighteen
FRAMING = 1024  # tokens that a template may add; sound ones add three
# What frames a text, how, and two texts
FRAMES = {
    "opt": ("</s>", "</s> $A", "</s> $A $B:1"),
    "deberta": ("[CLS] [SEP]", "[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
}


def main(library: str, memory: int, seconds: int) -> None:
    """Answer questions until there are no more."""
    _limit_memory(memory)
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    questions, answers = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library writes is not an answer
    sys.path.append(library)
    made = None
    for line in questions:
        asked = json.loads(line)
        why = "unsound" if "size" in asked else "why"
        data = questions.read(asked.get("size", 0))
        with _watched(seconds):
            try:
                if "size" in asked:
                    import tokenizers

                    made = None  # never two of them
                    made = _loaded(tokenizers, data)
                answer = json.dumps({"found": None if "size" in asked else _found(made, asked)})
            except MemoryError:
                os.abort()
            except ImportError:  # the package is there, and does not fit this Python or this machine
                answer = json.dumps({"missing": True})
            except BaseException as error:  # a panic of the library's Rust code is not an Exception
                answer = json.dumps({why: str(error)[:1000]})
        _write(answers, answer.encode() + b"\n")


def _loaded(tokenizers: Any, data: bytes) -> Any:
    """Return the tokenizer of a tokenizer.json, or of a vocabulary: it pads and cuts nothing."""
    given = json.loads(data) if data.startswith(b'{"words": ') else {}
    if not given:
        made = tokenizers.Tokenizer.from_buffer(data)
    elif "merges" in given:
        made = _byte_level(tokenizers, given["words"], given["merges"], given["family"])
    else:
        lowercase = given["lowercase"]
        made = tokenizers.BertWordPieceTokenizer(given["words"], lowercase=lowercase, strip_accents=None)
    made.no_truncation()
    made.no_padding()
    return made


def _byte_level(tokenizers: Any, words: dict[str, int], merges: list[str], family: str) -> Any:
    """Return GPT-2's tokenizer, or that of RoBERTa, OPT or DeBERTa, which frame their texts."""
    made = tokenizers.ByteLevelBPETokenizer(words, [tuple(line.split(" ")) for line in merges])
    if family == "roberta":
        if "<mask>" in words:  # it takes the space before it along, as a word does
            made.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
        ends = [(name, words[name]) for name in ("</s>", "<s>")]
        framed = tokenizers.processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
        made.post_processor = framed
    elif family in FRAMES:
        names, single, pair = FRAMES[family]
        ids = [(name, words[name]) for name in names.split()]
        made.post_processor = tokenizers.processors.TemplateProcessing(single, pair, ids)
    return made


def _found(made: Any, asked: dict[str, Any]) -> Any:
    if asked["do"] == "encode":
        found = made.encode(asked["text"], asked["second"])
        most = FRAMING + GROWTH * (len(asked["text"]) + len(asked["second"] or ""))
        if len(found.ids) > most:  # so that whoever asks need not hold an answer without bounds
            raise ValueError(f"it makes {len(found.ids):,} tokens, where {most:,} would be many")
        texts = [which or 0 for which in found.sequence_ids]
        return [found.ids, found.tokens, found.special_tokens_mask, found.offsets, found.type_ids, texts]
    if asked["do"] == "decode":
        return made.decode(asked["ids"], skip_special_tokens=False)
    return getattr(made, asked["do"])(asked["of"])


def _write(answers: IO[bytes], written: bytes) -> None:
    with suppress(BrokenPipeError):  # the process that asked has ended: there is no next line
        answers.write(written)
        answers.flush()


def _limit_memory(most: int) -> None:
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limits, and macOS not this one
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # if the machine is out of memory, this process goes first


@contextmanager
def _watched(seconds: int) -> Iterator[None]:
    """Have the system end the process if the work takes longer, or if the process that asked ends meanwhile.

    While the library works, nothing of Python runs.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, most))
    _signal_end(True)
    yield
    _signal_end(False)


def _signal_end(is_on: bool) -> None:
    """Have the system send SIGIO, which ends this process, when its input ends; or no longer."""
    with suppress(ImportError, OSError, AttributeError):
        import fcntl
        import select

        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC if is_on else flags & ~os.O_ASYNC)
        if is_on and select.select([0], [], [], 0)[0]:  # it has ended already
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
