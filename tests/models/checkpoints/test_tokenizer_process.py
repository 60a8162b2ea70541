"""A tokenizer in a separate process: limits, signals, and what is left of it when attn ends."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from attn_cli.errors import InputError
from attn_cli.models.checkpoints import tokenizer_process
from attn_cli.models.checkpoints.tokenizer import TextEncoder
from tests.models.checkpoints.by_hand import GPT2, gpt2, saved
from tests.models.checkpoints.tokenizer_files import ENDLESS, pre_tokenizers, replace, split, tokenizer_json
from tests.shell import COMMAND, attn, surroundings

LONG = "a" * 3000  # more, and the library itself gives up soon
API = """
import sys, threading
from attn_cli import Settings, trace_self
def trace():
    print(trace_self(sys.argv[2], Settings(model=sys.argv[1])).query_tokens, flush=True)
trace()
thread = threading.Thread(target=trace)
thread.start()
thread.join()
"""


@pytest.fixture
def model(tokenizers, tmp_path):
    """The folder of a GPT-2 whose expression is unknown, and takes minutes for a long word."""
    saved(tmp_path / "model", GPT2, gpt2())
    parts = {"pre_tokenizer": pre_tokenizers({"type": "Whitespace"}, split(ENDLESS))}
    (tmp_path / "model" / "tokenizer.json").write_text(tokenizer_json(**parts))
    return str(tmp_path / "model")


def holder():
    return tokenizer_process._holders[os.getpid()]


@pytest.fixture
def anew(model):
    """Let the separate process start in a test, with the limits that it sets, and end with it."""
    TextEncoder(model, "gpt2")
    holder().end()
    yield
    holder().end()


def children(pid):
    """Return the processes that another has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(is_so, seconds=10):
    end = time.monotonic() + seconds
    while not (found := is_so()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_one_process_answers_for_all_texts_and_for_every_reader_of_a_file(model):
    first = TextEncoder(model, "gpt2")
    assert first.encode("a b ab").ids == (0, 1, 4)
    process = holder().process
    second = TextEncoder(model, "gpt2")
    assert second.encode("b", "a").types == (0, 1) and second.token(4) == "ab" and second.text(3) == "d"
    assert second.mask() == (None, None) and holder().process is process and process.is_running()


def test_what_the_library_refuses_is_refused_in_one_line(model, tmp_path):
    unsound = tokenizer_json(pre_tokenizer=split("(" * 100), model={"type": "BPE"})
    (tmp_path / "tokenizer.json").write_text(unsound)
    with pytest.raises(InputError, match="is not a sound tokenizer"):
        TextEncoder(str(tmp_path), "bert")
    assert TextEncoder(model, "gpt2").encode("a").ids == (0,)


def test_more_time_than_there_is_ends_in_one_line_and_the_next_text_is_encoded(model, anew, monkeypatch):
    monkeypatch.setattr(tokenizer_process, "SECONDS", 1)
    encoder = TextEncoder(model, "gpt2")
    start = time.monotonic()
    with pytest.raises(InputError, match=r"took more than 1 seconds: .* the cost of the step Split") as found:
        encoder.encode(LONG)
    assert time.monotonic() - start < 5 and "\n" not in str(found.value)
    assert encoder.encode("ab").ids == (4,)


def test_more_memory_than_there_is_ends_in_one_line(anew, tmp_path, monkeypatch):
    longer = replace("", "ab" * 500) | {"pattern": {"Regex": "[ab]"}}
    steps = {"type": "Sequence", "normalizers": [longer] * 8}
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(normalizer=steps))
    monkeypatch.setattr(tokenizer_process, "MEMORY", 1 << 30)
    encoder = TextEncoder(str(tmp_path), "bert")
    with pytest.raises(InputError, match=r"took more than 1 GB of memory, or crashed: .* the step Replace"):
        encoder.encode("a")
    assert not holder().process.is_running() and encoder.encode("c").ids == (2,)


def test_a_process_that_has_been_killed_is_started_again(model):
    encoder = TextEncoder(model, "gpt2")
    os.kill(holder().process.running.pid, signal.SIGKILL)
    holder().process.running.wait()
    assert encoder.encode("ab").ids == (4,)


def in_threads(*works):
    """Do works at the same time, and return what they return."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [one.result() for one in [pool.submit(work) for work in works]]


def test_threads_ask_one_process_in_turn(model):
    encoders = [TextEncoder(model, "gpt2") for _ in range(4)]
    texts = ["ab", "a b", "b", "a"]

    def ask(encoder, text):
        return {encoder.encode(text).tokens for _ in range(50)}

    found = in_threads(*(partial(ask, *one) for one in zip(encoders, texts, strict=True)))
    assert found == [{("ab",)}, {("a", "b")}, {("b",)}, {("a",)}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_attn_at_once_and_leaves_no_process(number, model):
    with subprocess.Popen(
        [*COMMAND, "self", LONG, "-m", model], env=surroundings(), stderr=subprocess.PIPE
    ) as run:
        (child,) = wait_until(lambda: children(run.pid))
        wait_until(lambda: int(Path(f"/proc/{child}/stat").read_text().split()[13]) > 5)  # it works already
        start = time.monotonic()
        run.send_signal(number)
        assert run.wait(5) == (-9 if number == signal.SIGKILL else 128 + number)
        assert time.monotonic() - start < 2 and run.stderr.read() == b""
    assert wait_until(lambda: not Path(f"/proc/{child}").exists())


def test_a_script_without_a_main_guard_and_its_threads_get_their_traces(model, tmp_path):
    (tmp_path / "script.py").write_text(API)
    (tmp_path / "fcntl.py").write_text("raise SystemExit('code of the folder was run')")
    ran = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "script.py"), model, "a b"],
        capture_output=True,
        text=True,
        env=surroundings(),
        cwd=tmp_path,
        timeout=60,
    )
    assert ran.stdout == "('a', 'b')\n" * 2 and ran.stderr == "" and ran.returncode == 0


INTERRUPTED = """
import os, signal, sys, threading, time
from attn_cli import Settings, trace_self
from attn_cli.models.checkpoints import tokenizer_process
def interrupt():
    while not tokenizer_process._holders:
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    trace_self(sys.argv[2], Settings(model=sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
print(trace_self("a", Settings(model=sys.argv[1])).query_tokens)
"""


def test_an_interrupted_script_is_told_of_it_and_can_go_on(model):
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, model, LONG],
        capture_output=True,
        text=True,
        env=surroundings(),
        timeout=30,
    )
    assert ran.stdout == "interrupted\n('a',)\n" and ran.stderr == ""


def test_a_batch_encodes_in_every_one_of_its_processes(model, tmp_path):
    texts = [f"a {letter} ab" for letter in "abcd" * 20]
    (tmp_path / "texts").write_text("\n".join(texts) + "\n")
    ran = attn("batch", str(tmp_path / "texts"), "-m", model, "--workers", "2", "--fields", "query_tokens")
    assert ran.code == 0
    found = [json.loads(line)["query_tokens"] for line in ran.out.splitlines()]
    encoder = TextEncoder(model, "gpt2")
    assert found == [list(encoder.encode(text).tokens) for text in texts]
