"""Leads are put into a model's file: what it says of itself changes, and no number of it."""

import json

from attn_cli.io.array_files import read_safetensors
from attn_cli.io.files import data_path
from attn_cli.models.model_file import read_model
from data.making.tests.running import making


def test_leads_are_measured_and_written_and_the_tensors_bytes_stay(tmp_path):
    whole = data_path("roles-deep.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(whole)
    cases = [{"tokens": ["The", name, "slept", "and", "it", "ate"], "pronoun": 4, "antecedents": [[0, 2]]} for name in
             ("dog", "cat", "horse", "cow", "fox")]  # fmt: skip
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    ran = making("leads", "m.safetensors", "p.jsonl", cwd=tmp_path)
    assert ran.code == 0 and "it: from a lead of" in ran.err, ran.err
    made = (tmp_path / "m.safetensors").read_bytes()
    ends = [8 + int.from_bytes(data[:8], "little") for data in (whole, made)]
    assert whole[ends[0] :] == made[ends[1] :] and ends[1] % 8 == 0
    lead, _, n, right = read_model(str(tmp_path / "m.safetensors")).clear_lead("antecedent", "it")
    assert n == 5 and right >= 4 and 0 < lead < 1
    before, after = (
        read_safetensors(str(path))[1]
        for path in (data_path("roles-deep.safetensors"), tmp_path / "m.safetensors")
    )
    assert {key for key in before if before[key] != after[key]} == {"facts"}
