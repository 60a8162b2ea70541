"""A checkpoint's tokenizer gives the ids of transformers; a hostile one ends in one line, and leaves no process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from attn_cli.errors import AttnError, FileError, InputError, MissingExtra
from attn_cli.models.checkpoints import open_model as opening, tokenizer_child
from attn_cli.models.checkpoints.open_model import Encoded, TextEncoder
from attn_cli.pipeline.sources.checkpoint_text import shifted
from tests.models.checkpoints.by_hand import GPT2, PIECES, byte_pairs, gpt2, saved, word_pieces
from tests.shell import COMMAND, attn, surroundings, wait_for, worked
from tests.thorough import takes_long

WORDS = (*PIECES, "##", "Cat", "é")
BYTES = ("<s>", "<pad>", "</s>", "<unk>", *"Ġabcdehostuw!", "Ġt", "he", "Ġthe")
MERGES = ("Ġ t", "h e", "Ġt he")
LETTERS = ("a", "b", "c", "d", "ab", "u")
LONG = "a" * 3000  # more, and the library itself gives up soon


def tokenizer_json(**parts):
    """Return a tokenizer.json that knows letters, with these parts."""
    words = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(LETTERS)}, "unk_token": "u"}
    made = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": words,
    }  # fmt: skip
    return json.dumps(made | parts, ensure_ascii=False)


def split(expression):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def replaced(old, new, times):
    step = {"type": "Replace", "pattern": {"String": old}, "content": new}
    return {"normalizer": {"type": "Sequence", "normalizers": [step] * times}}


def template(times=1, ids=1, texts=1, tokens=None):
    """Return a template: a token that stands for so many `ids`, so many `times`, and the text so often."""
    special = {"id": "c", "ids": [2] * ids, "tokens": ["c"] * (ids if tokens is None else tokens)}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = [{"SpecialToken": {"id": "c", "type_id": 0}}] * times + [text] * texts
    pair = [text, {"Sequence": {"id": "B", "type_id": 1}}]
    made = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {"c": special}}
    return {"post_processor": made}


# An expression that tries all pairs of places of a run of letters, from each of them
ENDLESS = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, split(r"\w*\w*\d\s")]}


@pytest.fixture
def model(tokenizers, tmp_path):
    """The folder of a GPT-2 whose expression takes minutes for a long word."""
    saved(tmp_path / "model", GPT2, gpt2())
    (tmp_path / "model" / "tokenizer.json").write_text(tokenizer_json(pre_tokenizer=ENDLESS))
    return str(tmp_path / "model")


@pytest.fixture
def anew(tokenizers, tmp_path):
    """Let the separate process start in a test, with the limits that it sets, and end with it."""
    byte_pairs(tmp_path)
    TextEncoder(str(tmp_path), "gpt2")
    library().end()
    (tmp_path / "vocab.json").unlink()
    yield
    library().end()


def library():
    return opening._libraries[os.getpid()]


def test_without_the_library_the_line_that_installs_it_is_given(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'attn-cli\[models\]'") as found:
        TextEncoder(str(tmp_path), "bert")
    assert found.value.code == 69
    (tmp_path / "tokenizers").mkdir()  # a mere folder of that name is not the library
    others = [path for path in sys.path if not Path(path, "tokenizers", "__init__.py").exists()]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    monkeypatch.delitem(sys.modules, "tokenizers")
    word_pieces(tmp_path, WORDS)
    with pytest.raises(MissingExtra):
        TextEncoder(str(tmp_path), "bert")


def test_a_library_that_cannot_be_imported_is_missing(tmp_path):
    (tmp_path / "tokenizers").mkdir()
    (tmp_path / "tokenizers" / "__init__.py").write_text("import what_another_python_has")
    child = [sys.executable, "-I", "-S", tokenizer_child.__file__, str(tmp_path), str(1 << 30), "9"]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdin.write(b'{"size": 2}\n{}')
        running.stdin.flush()
        assert json.loads(running.stdout.readline()) == {"missing": True}


def test_a_decoder_reads_its_start_token_in_the_place_of_the_one_that_closes_a_text():
    names = SimpleNamespace(token="<{}>".format)
    for ids, special in (((5, 6, 1), (False, False, True)), ((5, 6), (False, False))):
        tokens = ("a", "b", "</s>")[: len(ids)]
        found = shifted(names, Encoded(ids, tokens, special, ()), 0)
        assert found[:3] == ((0, 5, 6), ("<0>", "a", "b"), (True, False, False))


def test_word_pieces_or_a_tokenizer_json_are_read_and_nothing_is_cut_or_padded(tokenizers, tmp_path):
    word_pieces(tmp_path, WORDS)
    found = TextEncoder(str(tmp_path), "bert").encode("The CATS walking")
    assert found.tokens == ("[CLS]", "the", "cat", "##s", "walk", "##ing", "[SEP]")
    assert found.ids == (2, 5, 6, 7, 8, 9, 3)
    assert found.special == (True, *[False] * 5, True) and set(found.types) == {0}
    pair = TextEncoder(str(tmp_path), "bert").encode("cat", "home")
    assert pair.tokens == ("[CLS]", "cat", "[SEP]", "home", "[SEP]") and pair.types == (0, 0, 0, 1, 1)
    unknown = TextEncoder(str(tmp_path), "bert").encode("cat zebra [UNK]", "yak home")
    assert unknown.unknown == (("zebra", "[UNK]"), ("yak", "[UNK]")) and unknown.second == 5
    assert len(TextEncoder(str(tmp_path), "bert").encode("a", "a b " * 1000).ids) == 2004
    for lower, read in ((False, "Cat"), (None, "cat")):
        word_pieces(tmp_path, WORDS, lower)
        assert TextEncoder(str(tmp_path), "bert").encode("Cat").tokens == ("[CLS]", read, "[SEP]")
    (tmp_path / "tokenizer_config.json").unlink()
    assert TextEncoder(str(tmp_path), "bert").encode("Cat").tokens == ("[CLS]", "cat", "[SEP]")
    (tmp_path / "vocab.txt").write_bytes("\r\n".join((*WORDS[:5], "", *WORDS[5:])).encode())
    # A line without a word counts
    assert TextEncoder(str(tmp_path), "bert").encode("the cat").ids == (2, 6, 7, 3)
    word_pieces(tmp_path, WORDS)
    made = tokenizers.BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)})
    made.enable_truncation(4)
    made.enable_padding(length=12)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("nothing")
    found = TextEncoder(str(tmp_path), "bert").encode("the cat the cat the cat")
    assert found.tokens == ("[CLS]", *["the", "cat"] * 3, "[SEP]")


def test_byte_pairs_are_read_from_vocab_json_and_merges_txt_and_framed_by_family(tokenizers, tmp_path):
    names = [*BYTES, "<mask>", "[CLS]", "[SEP]", "#", "##"]
    byte_pairs(tmp_path, names, [*MERGES, "# #"])
    found = {family: TextEncoder(str(tmp_path), family) for family in ("gpt2", "opt", "bart", "deberta")}
    plain = ("t", "h", "a", "t", "Ġthe")
    framed = {"gpt2": plain, "opt": ("</s>", *plain), "bart": ("<s>", *plain, "</s>")}
    framed["deberta"] = ("[CLS]", *plain, "[SEP]")
    assert {family: one.encode("that the").tokens for family, one in found.items()} == framed
    pairs = {family: one.encode("he", "t##") for family, one in found.items()}
    assert {family: (*one.tokens, one.second) for family, one in pairs.items()} == {
        "gpt2": ("he", "t", "##", 1), "opt": ("</s>", "he", "t", "##", 2),
        "bart": ("<s>", "he", "</s>", "</s>", "t", "##", "</s>", 4),
        "deberta": ("[CLS]", "he", "[SEP]", "[SEP]", "t", "##", "[SEP]", 4),
    }  # fmt: skip
    types = {"gpt2": (0, 1, 1), "opt": (0, 0, 1, 1), "bart": (0,) * 7, "deberta": (0,) * 7}
    assert {family: one.types for family, one in pairs.items()} == types
    assert found["bart"].mask() == ("<mask>", len(BYTES))
    masked = found["bart"].encode("he <mask> the").ids  # which is one token, and takes its space along
    assert list(masked) == [0, names.index("he"), len(BYTES), names.index("Ġthe"), 2]


@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta"])
def test_the_ids_are_those_of_transformers(family, tokenizers, transformers, tmp_path):
    if family == "bert":
        word_pieces(tmp_path, WORDS)
        made = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"))
    else:
        byte_pairs(tmp_path, BYTES, MERGES)
        kind = transformers.GPT2Tokenizer if family == "gpt2" else transformers.RobertaTokenizer
        merges = [tuple(line.split()) for line in MERGES]
        made = kind(vocab={word: n for n, word in enumerate(BYTES)}, merges=merges)
    made.save_pretrained(tmp_path / "saved")
    for text in ("the cat", "walking the cats home", "that house, the thé"):
        for folder in (tmp_path, tmp_path / "saved"):
            assert list(TextEncoder(str(folder), family).encode(text).ids) == made(text)["input_ids"], text


def test_a_token_as_text_has_a_space_in_front_where_it_starts_a_word(tokenizers, tmp_path):
    byte_pairs(tmp_path, BYTES, MERGES)
    found = TextEncoder(str(tmp_path), "gpt2")
    assert [found.text(BYTES.index(token)) for token in ("Ġthe", "he", "<s>")] == [" the", "he", "<s>"]
    assert found.text(999) == "<999>" and found.mask() == (None, None)
    (tmp_path / "bert").mkdir()
    word_pieces(tmp_path / "bert", WORDS)
    found = TextEncoder(str(tmp_path / "bert"), "bert")
    assert [found.text(*n) for n in ([5], [7], [2], [2, 5])] == ["the", "##s", "[CLS]", "[CLS] the"]
    assert found.mask() == ("[MASK]", 4)
    scored = [("<unk>", 0.0), ("▁the", -1.0), ("s", -2.0), ("▁", -3.0)]
    pieces = tokenizers.Tokenizer(tokenizers.models.Unigram(scored, 0))
    pieces.decoder = tokenizers.decoders.Metaspace()
    (tmp_path / "t5").mkdir()
    pieces.save(str(tmp_path / "t5" / "tokenizer.json"))
    found = TextEncoder(str(tmp_path / "t5"), "t5")
    assert [found.text(n) for n in (1, 2, 3)] == [" the", "s", "▁"]


MAP_OF_4_GB = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}}
NO_MODEL = b'{"model": {"type": "Unigram", "vocab": [], "unk_id": 7}}'
WRONG = tokenizer_json(pre_tokenizer=split("(" * 100))
DEEP, MANY = b"[" * 1_000_000, (("vocab.txt", b"\n"), ("vocab.json", b","), ("merges.txt", b"\n"))
NO_WORDS = b"[]", b'{"a": -1}', b'{"a": 1e400}', b'{"a": 4294967296}'
UNSOUND = (b"", b"{}", DEEP, NO_MODEL, b"\xff\xfe", WRONG)
HOSTILE = [
    *(("tokenizer.json", data, "not a sound tokenizer") for data in UNSOUND),
    *((name, DEEP, "is not a sound tokenizer") for name in ("vocab.json", "tokenizer_config.json")),
    *(("merges.txt", data, "is not a sound tokenizer") for data in (b"a b c\n", b"zz yy\n")),
    *(("vocab.json", data, "is not a vocabulary") for data in NO_WORDS),
    *((name, b"a" + end * 1_100_000, f"{name[:-4]}.* has more than 1,048,576 words") for name, end in MANY),
    ("tokenizer.json", tokenizer_json(pre_tokenizer=split("(a+)+$")), "cannot encode"),
    ("tokenizer.json", tokenizer_json(**MAP_OF_4_GB), "took more than 4 GB of memory, or cra"),
    ("tokenizer.json", tokenizer_json(**template(texts=20_000)), "20,001 tokens, where 13,888 would be many"),
    ("tokenizer.json", tokenizer_json(**template(ids=3, tokens=1)), "gives 4 ids and 2 tokens"),
    ("vocab.txt", b"\xff\xfe", "is not UTF-8 text"),
    ("vocab.txt", b"", "The tokenizer of"),
    ("vocab.txt", 24_000_000, "24,000,000 bytes is above the limit"),
    ("tokenizer.json", 1 << 30, "above the limit"),
]


@pytest.mark.parametrize(("name", "content", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_file_is_refused_soon_in_one_line(name, content, said, tokenizers, tmp_path, capfd):
    if name in ("vocab.json", "merges.txt"):
        byte_pairs(tmp_path, BYTES, MERGES)
    if name == "tokenizer_config.json":
        word_pieces(tmp_path, WORDS)
    data = b"" if isinstance(content, int) else content.encode() if isinstance(content, str) else content
    (tmp_path / name).write_bytes(data)
    os.truncate(tmp_path / name, content if isinstance(content, int) else len(data))
    start = time.monotonic()
    with pytest.raises(AttnError, match=said) as found:
        TextEncoder(str(tmp_path), "roberta").encode("a" * 200 + "b")
    assert found.value.code in (65, 66) and len(str(found.value)) < 800 and "\n" not in str(found.value)
    assert time.monotonic() - start < 10 and capfd.readouterr().err == ""
    byte_pairs(tmp_path)
    for other in ("tokenizer.json", "vocab.txt"):
        (tmp_path / other).unlink(missing_ok=True)
    assert TextEncoder(str(tmp_path), "gpt2").encode("a").ids == (0,)


def test_texts_that_cannot_be_encoded_and_sentencepiece_are_refused_with_a_line_to_run(tokenizers, tmp_path):
    hints = []
    (tmp_path / "vocab.txt").symlink_to("vocab.txt")
    for name, family, said in (
        ("tokenizer.model", "llama", r"tokenizer\.model"),
        ("spiece.model", "llama", r"its tokenizer in spiece\.model, which attn does not read"),
        ("source.spm", "marian", "Encode the texts with the transformers library, and give their token ids"),
        ("none", "marian", r"no tokenizer\.json, no vocab\.txt, and no vocab\.json with merges\.txt\."),
    ):
        (tmp_path / name).write_bytes(b"\x0a\x0e")
        with pytest.raises(FileError, match=said) as found:
            TextEncoder(str(tmp_path), family)
        hints.append(found.value.hint)
        (tmp_path / name).unlink()
    assert "save_pretrained('.')" in hints[0] == hints[1]
    byte_pairs(tmp_path, BYTES, MERGES)
    with pytest.raises(InputError, match="cannot encode the text"):
        TextEncoder(str(tmp_path), "gpt2").encode("a\ud800b")
    with pytest.raises(InputError, match=r"finds no tokens in the text\. Give other words\."):
        TextEncoder(str(tmp_path), "gpt2").encode("")


def test_one_process_answers_every_thread_and_is_started_again_after_its_death(model):
    encoder = TextEncoder(model, "gpt2")
    process, texts = library().process, ["ab", "a b", "b", "a"] * 20
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda text: TextEncoder(model, "gpt2").encode(text).tokens, texts)
        assert [*found] == [tuple(text.split()) for text in texts]
    assert library().process is process and process.is_running()
    own = Path("/proc", str(process.running.pid))  # the first to go where memory is short, without a trace
    assert (own / "oom_score_adj").read_text() == "1000\n"
    assert re.search("Max core file size +0 +0 ", (own / "limits").read_text())
    process.running.kill()
    process.running.wait()
    assert encoder.encode("b", "a").types == (0, 1)


def test_more_time_than_there_is_ends_in_one_line_and_the_next_text_is_encoded(model, anew, monkeypatch):
    monkeypatch.setattr(opening, "SECONDS", 2)
    encoder = TextEncoder(model, "gpt2")
    said = r"took more than 2 seconds\. Compare its .* or give a shorter text\."
    with pytest.raises(InputError, match=said) as found:
        encoder.encode(LONG)
    assert "\n" not in str(found.value)
    assert encoder.encode("ab").ids == (4,)


def test_more_memory_than_there_is_ends_in_one_line(anew, tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(**replaced("a", "a" * 500, 8)))
    monkeypatch.setattr(opening, "MEMORY", 1 << 30)
    encoder = TextEncoder(str(tmp_path), "bert")
    with pytest.raises(InputError, match=r"took more than 1 GB of memory, or crashed\."):
        encoder.encode("a")
    assert not library().process.is_running() and encoder.encode("c").ids == (2,)


OTHERS = [pytest.param(number, marks=takes_long) for number in (signal.SIGTERM, signal.SIGKILL)]


@pytest.mark.parametrize("number", [signal.SIGINT, *OTHERS])
def test_a_signal_ends_attn_at_once_and_leaves_no_process(number, model):
    command = [*COMMAND, "self", LONG, "-m", model]
    with subprocess.Popen(command, env=surroundings(), stderr=subprocess.PIPE) as run:
        started = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        wait_for(started.read_text)
        (child,) = started.read_text().split()
        wait_for(lambda: worked(child) > 0.08)  # it works already
        run.send_signal(number)
        assert run.wait(20) == (-9 if number == signal.SIGKILL else 128 + number)
        assert run.stderr.read() == b""
    wait_for(lambda: not Path(f"/proc/{child}").exists())


SCRIPT = """
import os, signal, sys, threading, time
from attn_cli import Settings, trace_self
from attn_cli.models.checkpoints import open_model as opening
def trace(text="a b"):
    print(trace_self(text, Settings(model=sys.argv[1])).query_tokens, flush=True)
def interrupt():
    while not opening._libraries:
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    trace(sys.argv[2])
except KeyboardInterrupt:
    print("interrupted")
trace()
thread = threading.Thread(target=trace)
thread.start()
thread.join()
"""


def test_a_script_without_a_main_guard_is_told_of_an_interrupt_and_can_go_on_in_threads(model, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "fcntl.py").write_text("raise SystemExit('code of the folder was run')")
    command = [sys.executable, "-P", "script.py", model, LONG]
    ran = subprocess.run(command, capture_output=True, env=surroundings(), cwd=tmp_path, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"interrupted\n" + b"('a', 'b')\n" * 2, b"")


def test_a_batch_encodes_in_every_one_of_its_processes(model, tmp_path):
    texts = [f"a {letter} ab" for letter in "abcd" * 20]
    (tmp_path / "texts").write_text("\n".join(texts) + "\n")
    ran = attn("batch", str(tmp_path / "texts"), "-m", model, "--workers", "2", "--fields", "query_tokens")
    found = [json.loads(line)["query_tokens"] for line in ran.out.splitlines()]
    assert ran.code == 0 and found == [text.split() for text in texts]
