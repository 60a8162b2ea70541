"""Exercises on what comes of the weights: numbers that work out by hand, and answers that are right and graded."""

import json

import numpy as np
import pytest

from attn_cli.render.worksheet.effects import parts
from attn_cli.render.worksheet.writers import worksheet_html, worksheet_latex, worksheet_markdown
from attn_cli.teach.effects import make
from tests import shell
from tests.alike import assert_alike
from tests.schema import complaints
from tests.shell import here
from tests.teach.test_exercises import tables
from tests.thorough import often

TOPICS = ("norm", "logit")
OF_BOTH = pytest.mark.parametrize("topic", TOPICS)


def record(topic, seed=7):
    found = shell.record("exercise", "--topic", topic, "--seed", str(seed))
    assert complaints(found) == []
    return found


def by_hand(given):
    """What is asked for, by the formulas of the sheet."""
    if "U" in given:
        added = np.array(given["stream"]) @ given["U"]
        logits = added.sum(axis=0)
        return {"parts": added, "logits": logits[np.newaxis], "without": logits - added[1:4]}
    v = np.array(given["X"]) @ given["W_v"]
    f = v @ given["W_o"]
    lengths = np.sqrt(f[:, 0] ** 2 + f[:, 1] ** 2)
    return {"v": v, "transformed": f, "lengths": lengths[np.newaxis], "norms": given["weights"] * lengths}


@OF_BOTH
def test_every_seed_is_a_small_exercise_of_its_own_with_the_right_answers(topic):
    many = [make(topic, seed) for seed in range(often(24))]
    assert len({json.dumps(one.inputs["X" if topic == "norm" else "U"]) for one in many}) > len(many) / 2
    for one in many:
        right = by_hand(one.inputs)
        assert_alike(one.answers, {step: matrix.astype(float).tolist() for step, matrix in right.items()})
        if topic == "norm":
            lengths, weights = right["lengths"][0], np.array(one.inputs["weights"])
            assert (lengths % 1 == 0).all() and lengths.min() > 0 and lengths.max() < 20
            assert len(set(lengths)) == 3
            moved = right["norms"].argmax(axis=1) != weights.argmax(axis=1)
            assert moved.any() and not moved.all(), one.command
        else:
            best, left = right["logits"].argmax(), right["without"].argmax(axis=1)
            strongest = right["parts"][1:4, best].argmax()
            assert left[strongest] == best and (left != best).sum() == 1, one.command


@OF_BOTH
def test_a_sheet_has_a_blank_for_every_number_but_the_example_and_its_key_none(topic):
    for args in (("--mask", "causal"), ("--seed", "-1"), ("--seed", "9" * 23)):  # of attention, or no seed
        assert args[0] in shell.refused("exercise", "--topic", topic, *args)
    made = make(topic, 7)
    asked = sum(len(row) for step in made.answers.values() for row in step)
    text, key = (worksheet_markdown(parts(made, is_key)) for is_key in (False, True))
    assert sum(cell == "______" for table in tables(text) for row in table for cell in row) == asked - 1
    assert "____" not in key and f"{made.command} -o FOLDER" in text
    page = worksheet_html(parts(made))
    assert page.count('class="line"') == len(record(topic)["questions"])
    assert "attnchar{" not in worksheet_latex(parts(made, True)).partition("begin{document}")[2]


@OF_BOTH
def test_answers_are_graded_step_by_step(topic, at):
    assert here("exercise", "--topic", topic, "--seed", "5", "-o", "sheet").code == 0
    given, blank = (json.loads((at / "sheet" / f"{name}.json").read_text()) for name in ("inputs", "answer"))
    right = by_hand(given)
    assert blank == {name: [[None] * len(row) for row in step] for name, step in right.items()}
    asked = ("check", "a.json", "--expect", "sheet/inputs.json")

    def graded(answer):
        (at / "a.json").write_text(json.dumps(answer, default=np.ndarray.tolist))
        found = json.loads((ran := here(*asked, "-f", "json")).out)
        assert complaints(found) == [] and ran.code == (0 if found["ok"] else 1)
        return found, {one["step"]: one["status"] for one in found["compared"]}

    assert graded(right)[0]["ok"]
    (at / "a.json").write_text(json.dumps(record(TOPICS[topic == TOPICS[0]])["answers"]))
    first, second, *later = names = [*right]
    none = f"none of {', '.join(names[:-1])} or {names[-1]}: it holds"
    assert none in shell.refused(*asked, code=65)
    wrong = {name: np.array(step, float) for name, step in right.items()}
    wrong[second][0][0] += 1
    if topic == "norm":
        wrong["lengths"] = np.linalg.norm(wrong["transformed"], axis=1)[np.newaxis]
        wrong["norms"] = given["weights"] * wrong["lengths"]
    else:
        wrong["without"] = wrong["logits"] - right["parts"][1:4]
    found, status = graded(wrong)
    assert found["step"] == second and found["cell"] == [0, 0]
    row = "row 0" if topic != "norm" else f'key "{given["tokens"][0]}" (row 0)'
    assert f"The first difference is in {second}, at {row}, " in found["message"]
    assert status == {first: "right", second: "differs"} | dict.fromkeys(later, "follows")
    last = right[first].astype(float)
    last[-1][0] += 1  # of more rows than there are words
    assert graded(right | {first: last})[0]["cell"] == [len(last) - 1, 0]
    if topic == "norm":
        for changed, mistake in (
            ({"W_o": np.eye(2)}, "w-o-left-out"), ({"W_v": np.transpose(given["W_v"])}, "transposed-w")
        ):  # fmt: skip
            assert graded(by_hand(given | changed))[0]["likely"] == mistake
    without = {name: matrix for name, matrix in given.items() if name not in ("W_o", "U")}
    for broken in ({**given, "U": [[1]], "W_o": [[1]]}, without):
        (at / "sheet" / "inputs.json").write_text(json.dumps(broken))
        shell.refused(*asked, code=65)
