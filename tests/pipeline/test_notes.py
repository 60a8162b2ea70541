"""What attn says beside its numbers, and how it refuses: the whole of it, for each command of notes.txt."""

import json
import shlex
from pathlib import Path

import pytest

from tests.models.checkpoints.by_hand import small_bert, small_gpt2, small_gpt_oss
from tests.schema import checked
from tests.shell import here

FILES, *COMMANDS = Path(__file__).with_name("notes.txt").read_text("utf-8").split("\nattn ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the commands read: the files at the head of notes.txt, and three small models."""
    made = tmp_path_factory.mktemp("notes")
    for name, content in (line.split(": ", 1) for line in FILES.splitlines()):
        (made / name).write_text(content.replace(r"\n", "\n"))
    for write, name in ((small_bert, "bert"), (small_gpt2, "gpt2"), (small_gpt_oss, "oss")):
        write(made / name)
    return made


@pytest.mark.parametrize("lines", COMMANDS)
def test_a_command_has_these_notes_and_no_others_or_is_refused_with_this_line(
    lines, folder, request, monkeypatch
):
    command, *expected = map(str.strip, lines.strip().splitlines())
    if "-m " in command:
        request.getfixturevalue("tokenizers")
    monkeypatch.chdir(folder)
    ran = here(*shlex.split(command), "-f", "jsonl" if command.startswith("generate") else "json")
    error = checked(json.loads(ran.err))["error"] if ran.code else {}
    said = f"{ran.code}: {error['message']} {error['hint'] or ''}".strip() if ran.code else ""
    assert ([said] if said else json.loads(ran.out)["notes"]) == expected
