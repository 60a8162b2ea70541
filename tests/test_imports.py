"""Imports point down, one way; what is heavy is loaded by those who need it."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import attn_cli
from tests.shell import python

PACKAGE = Path(attn_cli.__file__).parent


def module(path):
    """The dotted name of a file inside the package: vectors.lookup; the package itself is __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def unit(dotted):
    return dotted.partition(".")[0]


def at_import(tree):
    """The nodes of a module but for those within functions."""
    todo, functions = [tree], ast.FunctionDef | ast.AsyncFunctionDef
    for node in todo:
        todo += [one for one in ast.iter_child_nodes(node) if not isinstance(one, functions)]
    return todo


@cache
def imported(tree, nodes=ast.walk):
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


def foreign(tree):
    return {unit(name) for name in imported(tree)} - {"attn_cli"} - sys.stdlib_module_names


@cache
def trees():
    """The syntax tree of each module, parsed when the first test asks: every worker collects this file."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {module(path): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def test_no_module_imports_a_name_that_begins_with_an_underscore_from_another():
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and unit(node.module) == "attn_cli":
                assert not [alias.name for alias in node.names if alias.name.startswith("_")], name


def test_the_contracts_of_imports_are_kept():
    lint = "import os; from importlinter.cli import lint_imports_command"
    ran = python(f"{lint}; os.chdir({str(PACKAGE.parent)!r}); lint_imports_command()")
    assert ran.code == 0, ran.out[-2000:]


def test_the_core_needs_numpy_and_what_holds_blas_to_one_thread():
    core = {name: foreign(tree) for name, tree in trees().items() if unit(name) == "core"}
    assert set().union(*core.values()) == {"numpy", "threadpoolctl"}
    assert [name for name, used in core.items() if "threadpoolctl" in used] == ["core.threads"]


def importers(library):
    """The modules that import `library` in a function, one entry an import; none may import it with itself."""
    found = []
    for name, tree in trees().items():
        assert library not in map(unit, imported(tree, at_import)), f"{name} imports {library} with itself"
        found += [name] * [*map(unit, imported(tree))].count(library)
    return found


TOKENIZERS = "models.checkpoints.tokenizer_child"  # the script of a separate process, which nobody imports
DRAWN = ("matplotlib", "textual")
WITHIN = {"torch": [], "dask": ["batch.scheduler"], "distributed": ["batch.scheduler"]}
WITHIN |= {"fsspec": ["batch.storage"], "tokenizers": [TOKENIZERS]}


def test_a_heavy_library_is_imported_in_a_function_of_one_module_or_of_none():
    for library, modules in WITHIN.items():
        assert sorted({*importers(library)}) == modules, library
    assert len(importers("tokenizers")) == len(importers("fsspec")) == 1 <= len(importers("gensim")) <= 2
    assert not [name for name, tree in trees().items() if f"attn_cli.{TOKENIZERS}" in imported(tree)]


def test_matplotlib_is_imported_by_figures_alone_in_the_functions_that_draw_and_textual_by_four_modules():
    figures, live = ({name for name, tree in trees().items() if one in foreign(tree)} for one in DRAWN)
    assert figures and all(name.startswith("render.figures") for name in figures)
    ran = python("import attn_cli.render.figures, attn_cli.cli.deliver; print('matplotlib' in sys.modules)")
    assert ran.out == "False\n", ran.err
    assert live == {"live.app", "live.guest", "live.keys", "live.text_line"}


EXTRAS = {"learn": {"scipy"}, "models": {"tokenizers"}, "figures": {"matplotlib"}, "live": {"textual"}}
# The last of Dask's makes the keys of a local cluster.
EXTRAS |= {"batch": {"pyarrow"}, "dask": {"dask", "distributed", "fsspec", "cryptography"}}
KNOWN = {"numpy", "typer", "rich", "wcwidth", "gensim", "rapidfuzz"}
KNOWN |= {"platformdirs", "threadpoolctl", "orjson"}


def test_what_is_imported_is_a_stated_dependency():
    wanted = KNOWN.union(*EXTRAS.values()) - {"cryptography"}
    assert set().union(*map(foreign, trees().values())) == wanted
    stated = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(stated)["project"]

    def named(requirements):
        return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}

    assert named(project["dependencies"]) == KNOWN
    assert {name: named(project["optional-dependencies"][name]) for name in EXTRAS} == EXTRAS


def test_nothing_that_computes_prints():
    quiet = {"core", "text", "settings", "vectors", "inputs", "trace", "models", "learn", "pipeline", "teach"}
    assert quiet <= set(map(unit, trees()))
    for name, tree in trees().items():
        if unit(name) in quiet:
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            assert not names & {"print", "input"} and not attributes & {"stdout", "stderr", "stdin"}, name
