"""From which lead on a model's head antecedent is mostly right: measured on passages, and put into the model's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attn_cli.io.atomic import written
from attn_cli.io.types import StageReport
from attn_cli.learn.score import ClearLead, Score, score
from attn_cli.learn.treebank import read_passages
from attn_cli.models.model_file import read_model
from attn_cli.vectors.lookup import open_table

SIZE = 8  # bytes before a safetensors header, which say how long it is


def measure_leads(model: str, passages: str, report: StageReport) -> dict[str, ClearLead]:
    """Score the model's heads on the passages, and write the leads into its file: the tensors' bytes stay."""
    found = score(read_model(model), open_table("word2vec"), read_passages(passages), report)
    by_name: dict[str, Score] = {one.name: one for one in found}
    leads = by_name["antecedent"].leads or {}

    def with_leads(facts: dict[str, Any]) -> None:
        facts["scores"]["antecedent"]["leads"] = leads

    change_facts(Path(model), with_leads)
    return leads


def change_facts(model: Path, change: Any) -> None:
    """Rewrite what a model's file says about itself; what follows the header is copied as it is."""
    data = model.read_bytes()
    end = SIZE + int.from_bytes(data[:SIZE], "little")
    header = json.loads(data[SIZE:end])
    facts = json.loads(header["__metadata__"]["facts"])
    change(facts)
    header["__metadata__"]["facts"] = json.dumps(facts)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % SIZE)
    with written(str(model)) as stream:
        stream.write(len(text).to_bytes(SIZE, "little") + text + data[end:])
