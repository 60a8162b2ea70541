"""What macOS and Windows do otherwise, as far as Linux can play it: attn has been run on neither."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from unittest import mock

import pytest

from attn_cli.io import signals, terminal
from attn_cli.io.atomic import write_together, written
from attn_cli.vectors.catalogue import is_name
from tests.batch.folders import write
from tests.io.test_console import Screen
from tests.shell import attn, python, surroundings

FOLDERS = """
sys.platform = sys.argv[1]
from platformdirs import windows
windows.get_win_folder = windows.get_win_folder_from_env_vars  # which takes over where nothing of Windows answers
from attn_cli.io.files import user_folder as of
print(*map(of, ("config", "data", "cache")), sep="\\n")
"""

# A console script, as pip makes it, on a system whose processes are spawned.
SCRIPT = """
import sys
from attn_cli.__main__ import run

sys.platform = "darwin"
if __name__ == "__main__":
    sys.exit(run())
"""
SYSTEMS = [("darwin", "Library/Application Support/attn", "Library/Caches/attn")]
SYSTEMS += [("win32", "AppData/Local/attn", "AppData/Local/attn/Cache")]


@pytest.fixture
def windows(monkeypatch):
    """Files as on Windows: no fcntl, no folder is opened, and no file that is open is renamed or removed."""

    def closed(act):
        def acted(*paths):
            opened = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
            if opened & {*map(os.path.realpath, paths)}:
                raise PermissionError(errno.EACCES, "used by another process", paths[0])
            return act(*paths)

        return acted

    def only_files(path, *more, opened=os.open):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *more)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(os, "open", only_files)
    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, closed(getattr(os, name)))


def test_a_file_is_written_whole_or_not_at_all_where_no_open_file_can_be_renamed(windows, at):
    for text in (b"old", b"new"):
        with written("a.txt") as stream:
            stream.write(text)
        assert Path("a.txt").read_bytes() == text
    with pytest.raises(ZeroDivisionError), written("a.txt") as stream:
        stream.write(b"half")
        1 / 0  # noqa: B018
    write_together(".", {"one": b"1", "two": b"2", "last": b"3"}, "last")
    assert sorted(os.listdir(".")) == ["a.txt", "last", "one", "two"] and Path("a.txt").read_bytes() == b"new"


@pytest.mark.parametrize(("system", "config", "cache"), SYSTEMS)
def test_the_users_folders_are_where_the_system_has_them(system, config, cache, tmp_path):
    env = dict.fromkeys(["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"])
    env |= {"HOME": str(tmp_path), "LOCALAPPDATA": f"{tmp_path}/AppData/Local"}
    ran = python(FOLDERS, system, env=env)
    found = ran.out.replace("\\", "/").split("\n")[:3]
    assert found == [f"{tmp_path}/{one}" for one in (config, config, cache)], ran.err


def test_no_vectors_are_named_as_a_device_or_a_path_of_windows():
    for name in ("con", "PRN", "aux.txt", "Nul", "com1", "LPT9", "COM3.tar.gz", "C:x", "a\\b"):
        assert not is_name(name) and is_name(f"x{name.replace(':', '').replace(chr(92), '')}")
    for name in ("glove-wiki.50", "console", "com", "common.1", "a+b_c"):
        path = PureWindowsPath("C:/data") / f"{name}.json"
        assert is_name(name) and path.parent == PureWindowsPath("C:/data") and path.stem == name


@pytest.mark.parametrize(("takes", "colours"), [(1, 16), (0, 0)])
def test_a_console_of_windows_is_told_to_obey_escapes_or_gets_none(monkeypatch, takes, colours):
    kernel = mock.Mock(**{"SetConsoleMode.return_value": takes})
    kernel.GetConsoleMode.side_effect = lambda console, mode: setattr(mode._obj, "value", 3) or 1
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(get_osfhandle=lambda number: 40 + number))
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr(terminal, "sys", SimpleNamespace(platform="win32", stdout=Screen()))
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    assert terminal.terminal_of(False).colors == colours
    ((console, mode),) = (call.args for call in kernel.SetConsoleMode.call_args_list)
    assert (console.value, mode) == (41, 7)


def test_a_pipe_that_windows_finds_broken_is_a_process_that_died(tmp_path):
    (tmp_path / "child.py").write_text("input()")
    process = signals.SeparateProcess(str(tmp_path / "child.py"), [], 5)
    process.running.stdin.close()
    process.running.stdin = mock.Mock(**{"flush.side_effect": OSError(errno.EINVAL, "Invalid argument")})
    with pytest.raises(signals.DiedError):
        process.ask({})


def test_spawned_processes_write_the_same_bytes(at):
    write(600)
    Path("script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", "batch", "lines.txt", "--workers", "2"]
    done = subprocess.run(command, env=surroundings(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == attn("batch", "lines.txt", "--workers", "1").out
