"""A folder of parts: continued after a kill with nothing lost and nothing twice; another run is refused."""

import errno
import io
import json
import os
import pickle
import signal
import subprocess
import time
from functools import partial
from hashlib import blake2b
from pathlib import Path

import pytest
import threadpoolctl

from attn_cli import Settings
from attn_cli.batch import Job, folder, manifest as manifests, run, workers
from attn_cli.batch.storage import inputs_of
from attn_cli.errors import AttnError, WriteError
from attn_cli.io.types import replace
from tests.batch.folders import WORDS, content, ended, manifest, records, write
from tests.cli.tables import told as cases
from tests.models.checkpoints.by_hand import byte_pairs, small_gpt2
from tests.shell import attn, here, refused, started
from tests.thorough import takes_long

INTO = ("batch", "-o", "out/")
run_out, refusal = partial(here, *INTO), partial(refused, *INTO, code=65)


def test_parts_hold_together_what_one_file_holds_and_a_complete_run_says_so(at, small):
    write(1300)
    whole = here("batch", "lines.txt", "--top", "1").out
    assert run_out("lines.txt", "--top", "1") == (0, "", "")
    assert records() == whole
    assert [part["lines"] for part in manifest()["parts"]] == [512, 512, 276]
    assert (manifest()["complete"], manifest()["lines"], manifest()["refused"]) == (True, 1300, 0)
    before = {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    said = "attn: out/ is complete: 1,300 lines in 3 parts. --force writes it anew.\n"
    assert run_out("lines.txt", "--top", "1") == (0, "", said)
    assert before == {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}


@pytest.mark.parametrize("damage", ["missing", "changed", "cut", "no manifest entry"])
def test_a_part_that_is_not_as_it_was_is_written_again(damage, at, small):
    write(1300)
    assert run_out("lines.txt").code == 0
    whole, part = records(), Path("out/part-00001.jsonl")
    left, data = "788 lines in 2 parts", part.read_bytes()
    if damage == "missing":
        part.unlink()
    elif damage == "no manifest entry":
        left = "512 lines in 1 part"
        Path("out/manifest.json").write_text(json.dumps(ended(manifest(), 0, 1)))
    else:
        part.write_bytes(data.replace(b"quick", b"quack", 1) if damage == "changed" else data[:-1])
    got = run_out("lines.txt")
    assert got == (0, "", f"attn: out/ already holds {left}: resuming.\n")
    assert records() == whole and manifest()["complete"]


OTHER = """
--fields summary => fields | --kind masked => kind | -f jsonl.gz => format | -t 2 => temperature
--score dot --head mean -q the => head, query, score | --tidy -f csv => fields, format, tidy
--fields weights --steps => fields, steps | --fields query_tokens --without the => fields, without
"""


def test_other_settings_another_input_and_other_files_are_refused_unless_forced(at, small):
    write(600)
    Path("v.txt").write_text("the 1 0\nquick 0 1\n")
    Path("w.json").write_text(json.dumps({name: [[1, 0], [0, 1]] for name in ("W_q", "W_k", "W_v")}))
    usual = ("lines.txt", "-e", "./v.txt", "-p", "w.json")
    assert run_out(*usual).code == 0
    os.utime("v.txt", (1, 1))  # the same file, copied anew
    assert " is complete: " in run_out(*usual).err
    before = records()
    for options, said in cases(OTHER):
        assert f"other settings ({said})" in refusal(*usual, *options)
    for is_ascii in (False, True):
        job = Job("self", Settings(), (), False, False, "jsonl", ascii_only=is_ascii)
        assert manifests.output_identity(job)["ascii"] == is_ascii
    named = {"embedding": "v.txt", "projection": "w.json", "mask": "lines.txt"}
    hashes = {name: blake2b(Path(name).read_bytes(), digest_size=16).hexdigest() for name in named.values()}
    assert manifests.hashes_of_files(Settings(**named)) == hashes
    changed = {"v.txt": "v.txt was changed", "w.json": "w.json was changed", "lines.txt": "input was another"}
    for name, said in changed.items():
        text = Path(name).read_text()
        Path(name).write_text(text.replace("1", "2", 1) if "1" in text else text + "the\n")
        assert said in refusal(*usual) and records() == before
        Path(name).write_text(text)
    assert run_out("lines.txt", "-f", "jsonl.gz", "--force").code == 0
    assert set(content()) == {"manifest.json", "part-00000.jsonl.gz", "part-00001.jsonl.gz"}


def test_what_changes_no_byte_may_change_between_runs_also_beside_a_part_of_refused_lines_alone(at, small):
    write(1600, bad=range(512, 1536))
    assert '"line": 513' in refusal("lines.txt", "--workers", "1")
    assert not manifest()["complete"] and manifest()["lines"] == 512
    got = run_out("lines.txt", "--workers", "2", "--threads", "1", "--keep-going")
    assert got.code == 65 and "1,024 of 1,600 lines were refused" in got.err
    whole = records()
    assert whole == here("batch", "lines.txt", "--keep-going").out
    Path("out/part-00003.jsonl").unlink()
    again = run_out("lines.txt", "--keep-going")
    assert again.code == 65 and "already holds 1,536 lines in 3 parts: resuming" in again.err
    assert records() == whole and manifest()["refused"] == 1024
    again = run_out("lines.txt")
    assert again.code == 0 and "1,600 lines in 4 parts, 1,024 of them refused. " in again.err


def test_a_run_that_ended_before_its_first_part_keeps_no_other_out(at, small):
    Path("lines.txt").write_text("a b\n...\n")
    assert refusal("lines.txt") and not manifest()["parts"]
    write(600)
    Path("out/part-00007.jsonl").write_text("of a process that was killed before it could name it")
    assert run_out("lines.txt", "-t", "2") == (0, "", "")
    assert records() == here("batch", "lines.txt", "-t", "2").out


def test_a_removal_that_ends_early_leaves_a_folder_that_is_known_to_be_a_run_s(at, small, monkeypatch):
    write(1300)
    assert run_out("lines.txt").code == 0
    whole, real = records(), os.unlink

    def unlink(path, **more):
        if os.path.basename(os.path.dirname(path)) == "out" and len(content()) == 3:  # one has been removed
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink)
        assert run_out("lines.txt", "--force").code == 73
    assert len(content()) == 3 and "manifest.json" in content()
    assert run_out("lines.txt").code == 0
    assert records() == whole
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    folder.LocalFolder("out").remove(["part-00000.jsonl"])
    assert synced == [os.stat("out").st_ino], "that a file has gone is on the disk, too"


def test_how_far_a_run_is_is_told_by_lines_and_by_their_share(at, small):
    files, seen = inputs_of([write(1300)]), []
    job = Job("self", Settings(embedding="random", dim=2), ("summary",), False, False, "jsonl")
    tell = lambda *told: seen.append(told)  # noqa: E731
    assert run.write_stream(job, files, 1, io.BytesIO(), tell) == (1300, 0)
    assert [lines for lines, _ in seen] == [512, 1024, 1300] and seen[-1][1] == 1
    for left, told in (([], [512, 1024, 1300]), (["part-00001.jsonl"], [1300])):
        seen.clear()
        folder.LocalFolder("out").remove(left) if left else Path("out").mkdir()
        place = folder.folder_of("out")
        assert run.write_folder(job, files, place, workers.Local(1), False, tell) == (1300, 0)
        assert seen == [(lines, lines / 1300) for lines in told]


@takes_long
def test_a_run_that_is_killed_again_and_again_ends_with_every_line_once(at):
    write(40_000)
    command = ("batch", "lines.txt", "--top", "1", "-o", "out/", "--workers", "2")
    for seconds in (0.7, 1.2):
        with started(*command, stderr=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
    assert attn(*command).code == 0
    assert records() == attn("batch", "lines.txt", "--top", "1").out


def test_a_folder_needs_a_file_force_a_folder_and_two_runs_do_not_write_into_one(at, monkeypatch):
    monkeypatch.setattr(folder, "PATIENCE", 0.1)
    write(1100, bad=(3, 700))
    assert attn("batch", "-o", "out/", input="a b\n").code == 2
    for options in ("--force", "-o out.jsonl --force", "-f npz -o x.npz"):
        assert here("batch", "lines.txt", *options.split()).code == 2
    assert here("batch", "lines.txt", "-o", "lines.txt/").code == 73
    Path("out").mkdir()
    with folder.LocalFolder("out").locked():
        assert "Another run is writing into out/" in refused(*INTO, "lines.txt", code=73)
    assert "2 of 1,100 lines were refused" in run_out("lines.txt", "--keep-going").err
    assert [part["refused"] for part in manifest()["parts"]] == [2]  # in all chunks of the part


def test_a_model_that_was_changed_in_place_is_another_setting(at, small, tokenizers):
    made = small_gpt2("gpt2")
    Path("lines.txt").write_text("dab\ncab\n")
    options = ("lines.txt", "-m", "gpt2")
    Path("gpt2/old.json").mkdir()  # what is no file does not count
    assert run_out(*options) == (0, "", "")
    assert run_out(*options).code == 0
    byte_pairs(made, merges=["a b"])
    assert "gpt2 was changed" in refusal(*options)
    found = [manifests.hashes_of_files(Settings(model="gpt2"))]
    for name in ("model.safetensors", "spiece.model", "vocab.txt", "notes.md"):
        with Path("gpt2", name).open("ab") as stream:
            stream.write(b" ")
        found.append(manifests.hashes_of_files(Settings(model="gpt2")))
    assert [one in found[:n] for n, one in enumerate(found)] == [False] * 4 + [True]


def test_several_files_are_one_input(at, small):
    whole = Path(write(1300)).read_text().splitlines(keepends=True)
    for n, name in enumerate(("a1.txt", "a2.txt", "b.txt")):
        Path(name).write_text("".join(whole[n::3]))
    Path("lines.txt").write_text("".join("".join(whole[n::3]) for n in range(3)))
    one = here("batch", "lines.txt")
    assert here("batch", "a*.txt", "b.txt") == one
    assert run_out("a*.txt", "b.txt").code == 0
    assert records() == one.out and manifest()["input"]["files"] == 3
    assert refusal("b.txt", "a*.txt")
    Path("b.txt").write_text("...\n")
    got = here("batch", "a*.txt", "b.txt")
    assert got.code == 65 and '"line": 868' in got.err
    assert here("batch", "a1.txt", "-").code == 2


def test_a_folder_is_tidied_of_files_that_nobody_writes(at):
    fcntl = pytest.importorskip("fcntl")
    left, held, other = ".part-00099.jsonl.deadbeef.part", ".part-00007.jsonl.0123abcd.part", ".mine.part"
    for name in (left, held, other, "part-00001.jsonl"):
        Path(name).write_text("a half")
    with open(held) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        folder.folder_of(".").tidy()
    assert sorted(os.listdir()) == sorted([held, other, "part-00001.jsonl"])
    folder.folder_of("nowhere").tidy()


@pytest.mark.parametrize("engine", [(), ("--engine", "dask")])
def test_a_part_of_a_run_that_has_gone_does_not_come_into_that_of_another(engine, at, small, dask_here):
    write(70, "one.txt")
    write(3, "two.txt")
    assert here("batch", "one.txt", "-o", "one/", "--engine", "dask").code == 0
    late = [task for (task,) in pickle.loads(Path("tasks").read_bytes())]
    Path("out").mkdir()
    assert workers.claim(folder.folder_of("out/"))  # a run that was killed when it had begun
    assert here("batch", "two.txt", "-o", "out/", "--temperature", "2", *engine).code == 0
    before = content()
    Path("v.txt").write_text("a 1\n")
    job = pickle.dumps(replace(pickle.loads(late[0].job), settings=Settings(embedding="v.txt")))
    for version in ("", "99"):
        with pytest.raises(AttnError, match="A worker has attn"):
            workers.compute_part(late[0]._replace(version=version))
    with pytest.raises(AttnError, match=r"A worker has another v\.txt"):
        workers.compute_part(late[0]._replace(job=job, files={"v.txt": "00"}))
    named = late[0]._replace(job=job, files={"w.json": "00"})  # v.txt is the worker's own
    for task in (*late, named):
        with pytest.raises(WriteError, match="no longer this run's"):
            workers.compute_part(task._replace(folder=os.path.abspath("out")))
    assert content() == before
    assert sorted(before) == ["manifest.json", "part-00000.jsonl"] and ".run" not in os.listdir("one")


def test_a_worker_with_several_threads_of_blas_writes_the_same_bytes_as_one(at, dask_here, monkeypatch):
    lines = [" ".join(WORDS[i % 9] for i in range(n)) for n in (61, 70, 85, 99, 125)]
    Path("lines.txt").write_text("\n".join(lines))
    options = ("lines.txt", "--fields", "output,weights")
    assert attn("batch", *options, "-o", "out/").code == 0  # as the program is run: with one
    one = content()
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with threadpoolctl.threadpool_limits(2):
        assert here("batch", *options, "-o", "out/", "--engine", "dask", "--force").code == 0
    assert content() == one


def test_an_error_names_the_parts_that_are_there(at, small, monkeypatch):
    monkeypatch.setattr(run, "SHARE", 1e-9)  # the manifest is not written again for long
    write(6 * 512, bad=(4 * 512,))
    assert run_out("lines.txt", "--workers", "1").code == 65
    assert [part["first"] for part in manifest()["parts"]] == [1, 513, 1025, 1537]
