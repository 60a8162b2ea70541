"""Imports point down, one way; what is heavy is loaded by those who need it."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import attn_cli
from tests.shell import surroundings

PACKAGE = Path(attn_cli.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def module(path):
    """The dotted name of a file inside the package: vectors.table; the package itself is __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def unit(dotted):
    return dotted.partition(".")[0]


@cache
def nodes(tree):
    return [*ast.walk(tree)]


@cache
def imported(tree):
    """Each imported module, wherever the import stands; of attn_cli the module that is meant."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = PACKAGE.parent / node.module.replace(".", "/") / alias.name
                is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
                found.append(f"{node.module}.{alias.name}" if is_module else node.module)
    return found


def own(tree):
    return {name.partition(".")[2] or "__init__" for name in imported(tree) if unit(name) == "attn_cli"}


def foreign(tree):
    return {unit(name) for name in imported(tree)} - {"attn_cli"} - sys.stdlib_module_names


@cache
def trees():
    """The syntax tree of each module, parsed when the first test asks: every worker collects this file."""
    return {module(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def users(library):
    return {
        unit(name)
        for name, tree in trees().items()
        if any(found == library or found.startswith(f"{library}.") for found in imported(tree))
    }


def test_no_module_imports_a_name_that_begins_with_an_underscore_from_another():
    for name, tree in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom) and unit(node.module) == "attn_cli":
                assert not [alias.name for alias in node.names if alias.name.startswith("_")], name


def test_the_contracts_of_imports_are_kept():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=PACKAGE.parent,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_core_needs_numpy_and_what_holds_blas_to_one_thread():
    core = {name: foreign(tree) for name, tree in trees().items() if unit(name) == "core"}
    assert set().union(*core.values()) == {"numpy", "threadpoolctl"}
    assert [name for name, used in core.items() if "threadpoolctl" in used] == ["core.threads"]


def test_the_names_of_scores_and_masks_are_read_without_numpy():
    for name in ("core.scores", "core.masks"):
        within = [node for node in ast.walk(trees()[name]) if isinstance(node, ast.FunctionDef)]
        inside = {id(node) for function in within for node in ast.walk(function)}
        at_import = [node for node in ast.walk(trees()[name]) if id(node) not in inside]
        imports = [node for node in at_import if isinstance(node, ast.Import | ast.ImportFrom)]
        assert "numpy" not in foreign(ast.Module(imports, [])), name


def importers(library):
    """The modules in which a function imports `library`, one entry an import; none may import it with itself."""
    found = []
    for name, tree in trees().items():
        if library not in map(unit, imported(tree)):
            continue
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {id(node) for function in functions for node in ast.walk(function)}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and library in map(unit, imported(node)):
                assert id(node) in inside, f"{name} imports {library} with itself"
                found.append(name)
    return found


def test_gensim_is_imported_in_one_function_or_two_and_never_with_a_module():
    assert 1 <= len(importers("gensim")) <= 2


def test_pytorch_is_never_imported():
    assert importers("torch") == []


def test_dask_is_imported_in_one_module():
    assert {*importers("distributed"), *importers("dask")} == {"batch.scheduler"}
    assert importers("fsspec") == ["batch.storage"]


def test_tokenizers_is_imported_in_the_script_of_a_separate_process_alone():
    script = "models.checkpoints.tokenizer_child"
    assert importers("tokenizers") == [script]
    assert not [name for name, tree in trees().items() if f"attn_cli.{script}" in imported(tree)]


def test_matplotlib_is_imported_by_figures_alone_in_the_functions_that_draw():
    found = [name for name, tree in trees().items() if "matplotlib" in foreign(tree)]
    assert found and all(name.startswith("render.figures") for name in found)
    code = "import sys, attn_cli.render.figures, attn_cli.cli.deliver; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=surroundings())
    assert done.stdout == "False\n", done.stderr


def test_textual_is_imported_by_four_modules():
    at_all = {name for name, tree in trees().items() if "textual" in map(unit, imported(tree))}
    assert at_all == {"live.app", "live.guest", "live.keys", "live.text_line"}


EXTRAS = {
    "learn": {"scipy"},
    "models": {"tokenizers"},
    "figures": {"matplotlib"},
    "live": {"textual"},
    "batch": {"pyarrow"},
}
# The last makes the keys of a local cluster.
EXTRAS |= {"dask": {"dask", "distributed", "fsspec", "cryptography"}}


def test_what_is_imported_is_a_stated_dependency():
    known = {
        "numpy",
        "typer",
        "rich",
        "wcwidth",
        "gensim",
        "platformdirs",
        "rapidfuzz",
        "threadpoolctl",
        "orjson",
    }
    wanted = known.union(*EXTRAS.values()) - {"cryptography"}
    assert set().union(*map(foreign, trees().values())) == wanted
    stated = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(stated)["project"]
    assert named(project["dependencies"]) == known
    assert {name: named(project["optional-dependencies"][name]) for name in EXTRAS} == EXTRAS


def named(requirements):
    """What requirements such as `numpy>=1.26` ask for, without the versions."""
    return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}


def test_nothing_that_computes_prints():
    quiet = {"core", "text", "settings", "vectors", "inputs", "trace", "models", "learn", "pipeline", "teach"}
    assert quiet <= set(map(unit, trees()))
    for name, tree in trees().items():
        names = {node.id for node in nodes(tree) if isinstance(node, ast.Name)}
        attributes = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}
        if unit(name) in quiet:
            assert not names & {"print", "input"} and not attributes & {"stdout", "stderr", "stdin"}, name


def test_every_public_name_can_be_imported():
    for name in attn_cli.__all__:
        assert getattr(attn_cli, name).__name__ == name
    with pytest.raises(AttributeError):
        attn_cli.attention_of_a_kind_that_is_not_there  # noqa: B018
