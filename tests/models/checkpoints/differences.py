"""Write the table of docs/models.md: each family, what of it was tried, and how far attn is from transformers.

python -m tests.models.checkpoints.differences, where PyTorch and transformers are installed.
"""

import re
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.models.checkpoints import test_parity as parity

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
START, END = "<!-- differences -->\n", "<!-- end of differences -->\n"
PARTS = {"logits": r", logits$", "layers' inputs": r", what layer \d+ takes$", "weights": ""}


def measured():
    """Return the largest difference of each family and part, of small random models of every case."""
    import transformers

    for name in (*parity.CASES, *parity.PAIRS):
        with TemporaryDirectory() as folder:
            parity.test_every_head_attends_as_in_transformers(name, 0, "right", transformers, Path(folder))
    found = defaultdict(lambda: defaultdict(float))
    for what, difference in parity.LARGEST.items():
        part = next(part for part, pattern in PARTS.items() if re.search(pattern, what))
        family = found[re.match("[^ ,]+", what)[0]]
        family[part] = max(family[part], difference)
    return found


def table(found):
    """Return the table's lines."""
    yield "| `model_type` | tried beside the defaults | weights | layers' inputs | logits |\n|---|---|---|---|---|\n"
    for family, parts in sorted(found.items()):
        names = (name for name in (*parity.CASES, *parity.PAIRS) if re.match("[^ ,]+", name)[0] == family)
        switches = "; ".join(filter(None, (name.removeprefix(family).lstrip(", ") for name in names)))
        columns = ("weights", "layers' inputs", "logits")
        numbers = (f"{parts[part]:.0e}" if part in parts else "" for part in columns)
        yield f"| `{family}` | {switches} | {' | '.join(numbers)} |\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(f"{before}{START}{''.join(table(measured()))}{END}{rest.partition(END)[2]}")
