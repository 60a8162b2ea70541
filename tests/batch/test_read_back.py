"""The page's recipes for pandas, polars and DuckDB, run where these are installed."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs import ROOT
from tests.shell import here

pytest.importorskip("pyarrow")
RECIPES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "batch.md").read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_a_recipe_finds_the_words_that_are_looked_at_most(library, at):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    Path("lines.txt").write_text("She likes coffee\nThe cat sat on the mat\nA dog barked\n")
    assert here("batch", "lines.txt", "-o", "lines.parquet").code == 0
    assert here("batch", "lines.txt", "--head", "all", "--tidy", "-o", "links.parquet").code == 0
    of_records, of_links = (one for one in RECIPES if f"import {library}\n" in one)
    for recipe, words in ((of_records, ("cat", "dog", "mat")), (of_links, ("determiner", "12", "cat"))):
        done = subprocess.run([sys.executable, "-c", recipe], capture_output=True, text=True, cwd=at)
        assert done.returncode == 0, done.stderr
        assert all(word in done.stdout for word in words), done.stdout
