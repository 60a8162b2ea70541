"""Exercises on what comes of the weights: numbers that work out by hand, and answers that are right and graded."""

import json
import math

import pytest

from attn_cli.render.worksheet.effects import parts
from attn_cli.render.worksheet.writers import worksheet_html, worksheet_latex, worksheet_markdown
from attn_cli.teach.effects import make
from tests import shell
from tests.schema import complaints
from tests.shell import here
from tests.teach.test_exercises import product, tables
from tests.thorough import often

SEEDS = range(often(24))
TOPICS = ("norm", "logit")


def record(topic, seed=7):
    return shell.record("exercise", "--topic", topic, "--seed", str(seed))


def transposed(matrix):
    return [list(column) for column in zip(*matrix, strict=True)]


def by_hand(given):
    """What is asked for, by plain loops over what is given."""
    if "U" in given:
        parts = product(given["stream"], given["U"])
        logits = [sum(column) for column in transposed(parts)]
        without = [[a - b for a, b in zip(logits, part, strict=True)] for part in parts[1:4]]
        return {"parts": parts, "logits": [logits], "without": without}
    v = product(given["X"], given["W_v"])
    f = product(v, given["W_o"])
    lengths = [math.hypot(*row) for row in f]
    norms = [[w * length for w, length in zip(row, lengths, strict=True)] for row in given["weights"]]
    return {"v": v, "transformed": f, "lengths": [lengths], "norms": norms}


def winner(row):
    return row.index(max(row))


@pytest.mark.parametrize("topic", TOPICS)
def test_every_seed_is_a_small_exercise_of_its_own_with_the_right_answers(topic):
    many = [make(topic, seed) for seed in SEEDS]
    assert len({json.dumps(one.inputs["X" if topic == "norm" else "U"]) for one in many}) > len(many) / 2
    for one in many:
        right = by_hand(one.inputs)
        assert list(one.answers) == list(right)
        for step, matrix in right.items():
            assert one.answers[step] == [pytest.approx(row) for row in matrix], (one.command, step)
    for one in many if topic == "norm" else ():
        lengths, norms = one.answers["lengths"][0], one.answers["norms"]
        assert all(length % 1 == 0 and 0 < length < 20 for length in lengths) and len({*lengths}) == 3
        moved = [
            winner(row) != winner(weights) for row, weights in zip(norms, one.inputs["weights"], strict=True)
        ]
        assert any(moved) and not all(moved), one.command
    for one in many if topic == "logit" else ():
        logits, parts, without = one.answers["logits"][0], one.answers["parts"], one.answers["without"]
        best = winner(logits)
        strongest = winner([row[best] for row in parts[1:4]])
        left = [winner(row) for row in without]
        assert left[strongest] == best and sum(word != best for word in left) == 1, one.command


@pytest.mark.parametrize("topic", TOPICS)
def test_the_questions_are_answered_by_the_numbers(topic):
    for seed in range(4):
        found = record(topic, seed)
        assert complaints(found) == []
        right, answers = found["answers"], [one["answer"] for one in found["questions"]]
        if topic == "norm":
            weights = found["inputs"]["weights"]
            i = next(n for n in range(3) if winner(weights[n]) != winner(right["norms"][n]))
            assert f"({max(weights[i])})" in answers[0] and f"({max(right['norms'][i]):.1f})" in answers[0]
            mixed = [
                sum(w * row[n] for w, row in zip(weights[i], right["transformed"], strict=True))
                for n in (0, 1)
            ]
            assert f"sum to {sum(right['norms'][i]):.1f}" in answers[1]
            assert f"a length of {math.hypot(*mixed):.2f}." in answers[1]
            continue
        words, best = found["inputs"]["words"], winner(right["logits"][0])
        heads = right["parts"][1:4]
        most = winner([row[best] for row in heads])
        assert answers[0].startswith(f'"{words[best]}"; head {most} adds {heads[most][best]:.0f};')
        h = next(n for n in range(3) if winner(right["without"][n]) != best)
        instead = winner(right["without"][h])
        assert answers[1].startswith(
            f'Without head {h} it says "{words[instead]}": that head adds '
            f'{heads[h][best]:.0f} to "{words[best]}" and {heads[h][instead]:.0f} to "{words[instead]}".'
        )


@pytest.mark.parametrize("topic", TOPICS)
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


@pytest.mark.parametrize("topic", TOPICS)
def test_answers_are_graded_step_by_step(topic, at):
    assert here("exercise", "--topic", topic, "--seed", "5", "-o", "sheet").code == 0
    given, blank = (json.loads((at / "sheet" / f"{name}.json").read_text()) for name in ("inputs", "answer"))
    right = by_hand(given)
    assert blank == {name: [[None] * len(row) for row in step] for name, step in right.items()}

    def graded(answer):
        (at / "a.json").write_text(json.dumps(answer))
        ran = here("check", "a.json", "--expect", "sheet/inputs.json", "-f", "json")
        found = json.loads(ran.out)
        assert complaints(found) == [] and ran.code == (0 if found["ok"] else 1)
        return found, {one["step"]: one["status"] for one in found["compared"]}

    assert graded(right)[0]["ok"]
    other = TOPICS[topic == TOPICS[0]]
    (at / "other.json").write_text(json.dumps(record(other)["answers"]))
    err = shell.refused("check", "other.json", "--expect", "sheet/inputs.json", code=65)
    assert f"none of {', '.join([*right][:-1])} or {[*right][-1]}: it holds" in err
    first, second, *_ = right
    wrong = json.loads(json.dumps(right))
    wrong[second][0][0] += 1
    later = {"norm": ["lengths", "norms"], "logit": ["without"]}[topic]
    if topic == "norm":
        wrong["lengths"] = [[math.hypot(*row) for row in wrong["transformed"]]]
        lengths = wrong["lengths"][0]
        wrong["norms"] = [[w * x for w, x in zip(row, lengths, strict=True)] for row in given["weights"]]
    else:
        logits = wrong["logits"][0]
        wrong["without"] = [[a - b for a, b in zip(logits, row, strict=True)] for row in right["parts"][1:4]]
    found, status = graded(wrong)
    assert found["step"] == second and found["cell"] == [0, 0] and status[first] == "right"
    assert [status[step] for step in later] == ["follows"] * len(later)
    last = json.loads(json.dumps(right))
    last[first][-1][0] += 1  # of more rows than there are words
    assert graded(last)[0]["cell"] == [len(right[first]) - 1, 0]
    if topic == "norm":
        for W, mistake in (("W_o", "w-o-left-out"), ("W_v", "transposed-w")):
            changed = transposed(given[W]) if W == "W_v" else [[1, 0], [0, 1]]
            assert graded(by_hand({**given, W: changed}))[0]["likely"] == mistake
    without = {name: matrix for name, matrix in given.items() if name not in ("W_o", "U")}
    for broken in ({**given, "U": [[1]], "W_o": [[1]]}, without):
        (at / "sheet" / "inputs.json").write_text(json.dumps(broken))
        shell.refused("check", "a.json", "--expect", "sheet/inputs.json", code=65)
