"""Fixtures that several files share."""

import contextlib
import gc
import importlib
import importlib.util
import os
import signal
import sys
from functools import cache
from itertools import compress
from pathlib import Path

import pytest
from hypothesis import settings

from tests import FOLDERS
from tests.thorough import ALL_TESTS, IS_REST, IS_THOROUGH, often, thinned, tries_more

collect_ignore = ["loaded.py"]  # it would load all that attn has where the tests run

# A shell lets what it runs in the background ignore interrupts, and its children inherit that: tests send some.
with contextlib.suppress(ValueError):  # not in the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)

# As the program has it before NumPy is loaded: beside another worker, a second thread of BLAS only spins.
if not IS_REST:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure(config):
    """Make known how much a run tries: its marks, and how many examples Hypothesis draws where a test does not say."""
    config.addinivalue_line("markers", "takes_long: left out of a run of everything, unless THOROUGH is set")
    config.addinivalue_line("markers", "like_cases: a few are in a run of everything, unless THOROUGH is set")
    settings.register_profile("attn", max_examples=often(100), deadline=None)  # a busy machine is no fault
    settings.load_profile("attn")


def pytest_collection_modifyitems(config, items):
    """Leave cases out of a run of all tests, so that it stays short; with THOROUGH set, or of a few files, none."""
    if (IS_THOROUGH and not IS_REST) or len(items) < ALL_TESTS:
        return
    quick = (item for item in items if not item.get_closest_marker("takes_long"))
    first = {item.nodeid for item in thinned(quick)}
    stays = [(item.nodeid not in first) == IS_REST or (IS_REST and tries_more(item)) for item in items]
    config.hook.pytest_deselected(items=[item for item, stay in zip(items, stays, strict=True) if not stay])
    items[:] = compress(items, stays)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while tests are collected, nor later among those 600,000 objects: they all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_teardown():
    """Give PyTorch its default type back: a script that `-f code:torch` writes sets float64 for the whole process."""
    if torch := sys.modules.get("torch"):
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory):
    """Let nothing be read from, or written to, the folders of whoever runs the tests."""
    assert not Path("attn.toml").exists(), "attn.toml would change what is tested: move it away"
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for variable in FOLDERS:
            patch.setenv(variable, str(folder / FOLDERS[variable]))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def opened_once():
    """Open each bundled model once: what runs in a process of its own, and most does somewhere, opens it itself."""
    from attn_cli.models import model_file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_file, "bundled", cache(model_file.bundled))
        yield


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Give the test a cache, data and downloads of its own, and return the folder that holds them."""
    for variable in FOLDERS.keys() - {"XDG_CONFIG_HOME"}:
        monkeypatch.setenv(variable, str(tmp_path / "own" / FOLDERS[variable]))
    return tmp_path / "own"


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Run the test in a folder of its own, and return that folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(tmp_path):
    """Write text or bytes to a file of the test, and return its path."""

    def write(content, name="v"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


@pytest.fixture
def without(monkeypatch):
    """Let a library not be there for the test, also where another test has loaded it."""

    def take_away(library):
        for name in {library, *(name for name in sys.modules if name.startswith(f"{library}."))}:
            monkeypatch.setitem(sys.modules, name, None)

    return take_away


def _library(name, *others):
    """Return a library; where it or one that it needs is not installed, skip the test, or fail if it must be there."""
    if any(importlib.util.find_spec(one) is None for one in (name, *others)):
        if os.environ.get("ATTN_REQUIRE_TRANSFORMERS"):
            pytest.fail(f"{name} is required here, and is not installed.")
        pytest.skip(f"{name} is not installed.")
    return importlib.import_module(name)


@pytest.fixture(scope="session")
def tokenizers():
    return _library("tokenizers")


@pytest.fixture(scope="session")
def transformers():
    """The library that models on disk are compared with."""
    found = _library("transformers", "torch")
    found.logging.set_verbosity_error()
    found.logging.disable_progress_bar()
    return found
