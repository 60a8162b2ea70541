"""Exercises: small whole numbers that work out by hand, another for every seed, and answers that are right."""

import itertools
import json
import re
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, partial
from xml.etree import ElementTree
from zlib import crc32

import numpy as np
import pytest

from attn_cli.inputs.matrices import read_given
from attn_cli.render.worksheet import parts
from attn_cli.render.worksheet.effects import parts as effect_parts
from attn_cli.render.worksheet.writers import latex_text, worksheet_html, worksheet_latex, worksheet_markdown
from attn_cli.teach import effects, exercises
from tests import shell
from tests.alike import assert_alike
from tests.cli.tables import told as cases
from tests.fuzz import answers
from tests.render.document.test_documents import balance
from tests.schema import complaints
from tests.shell import attn, here
from tests.thorough import often

SIZES = list(itertools.product((2, 3, 4), (2, 3, 4)))
KINDS = list(itertools.product(("none", "causal"), ("scaled", "dot")))
OF_EVERY_KIND = pytest.mark.parametrize(("mask", "score"), KINDS)
SEEDS = range(often(36))


make = cache(exercises.make)  # a search through ten thousand draws
record = partial(shell.record, "exercise")


@pytest.fixture(autouse=True)
def made_once(monkeypatch):
    monkeypatch.setattr(exercises, "make", make)


@pytest.fixture(scope="module")
def many():
    """Exercises of the usual size, and two of every size, with the largest seed."""
    return [make(n) for n in SEEDS] + [make(n, *size) for size in SIZES for n in (12345, 2**63 - 1)]


def problem(given, mask, score):
    arrays = {name: np.array(given[name], float) for name in ("X", "W_q", "W_k", "W_v")}
    arrays |= {} if mask == "none" else {"mask": mask}
    return arrays | {"heads": 1, "layout": "in-out", "score": score}


def solved(given, mask, score):
    """Every step of attention, as the formula has it."""
    steps = answers.solved(problem(given, mask, score))
    return {name: steps[name].tolist() for name in exercises.ANSWERS}


def test_every_seed_gives_another_exercise_always_the_same_one_of_small_whole_numbers(many):
    for seed in range(2):
        made = {str(make(seed, 2, 3, *kind)._replace(mask="", score="")) for kind in KINDS}
        assert len(made) == 1
    # What a seed draws may change, and the changelog says so then: these are checksums of what attn 1.0 draws.
    chosen = [*many[:12], *many[len(SEEDS) :], make(1, 4, 2), make(2, 4, 2)]
    effect = [effects.make(topic, seed).inputs for topic in TOPICS for seed in (4, 5, 8, 14, 15)]
    found = [crc32(json.dumps(one).encode()) for one in ([one[3:] for one in chosen], effect)]
    assert found == [2913202840, 1027874521]


@OF_EVERY_KIND
def test_every_mistake_shows(many, mask, score):
    for n, one in enumerate(many[::3]):
        given, found = problem(one._asdict(), mask, score), {}
        for codes in ((), *((code,) for code in answers.possible(given))):
            steps = answers.solved(given, codes, np.random.default_rng(n))
            found[codes] = np.hstack([steps["weights"], steps["output"]])
        for (name, a), (other, b) in itertools.combinations(found.items(), 2):
            assert abs(a - b).max() > 0.01, f"{one.command}: {name} looks like {other}"


# By hand: a student who has the sheet, paper, and the four basic operations.


def tables(text):
    """The tables of a Markdown document: rows of cells, without the line under the header."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.M)
    rows = ([line.strip("|").split("|") for line in block.splitlines()] for block in blocks)
    return [[[cell.strip(" `") for cell in row] for row in (first, *others)] for first, _, *others in rows]


def numbers(table):
    return np.array([[int(cell) for cell in row[1:]] for row in table[1:]])


def with_dashes(matrix, mask):
    """What a table shows of a matrix: a dash where the mask hides a key."""
    is_shut = (lambda i, j: j > i) if mask == "causal" else (lambda i, j: False)
    return [["–" if is_shut(i, j) else str(n) for j, n in enumerate(row)] for i, row in enumerate(matrix)]


def rounded(value, digits):
    shown = str(value.quantize(Decimal(10) ** -digits, ROUND_HALF_UP))
    return shown.lstrip("-") if not shown.strip("-0.") else shown


@OF_EVERY_KIND
@pytest.mark.parametrize(("dim", "words"), [(2, 3), (2, 4), (3, 3), (4, 2)])
def test_who_rounds_each_step_as_the_sheet_says_gets_the_numbers_of_the_key(dim, words, mask, score):
    for seed in range(3):
        made = make(seed, dim, words, mask, score)
        sheet, key = (worksheet_markdown(parts(made, is_key)) for is_key in (False, True))
        X, W_q, W_k, W_v = map(numbers, tables(sheet)[:4])
        Q, K, V = X @ W_q, X @ W_k, X @ W_v
        filled = tables(key)[4:]
        for table, right in zip(filled[:4], (Q, K, V, Q @ K.T), strict=True):
            assert numbers(table).tolist() == right.tolist()
        x = [[str(s) for s in row] for row in Q @ K.T]
        if score == "scaled":
            factor = "0.5" if dim == 4 else re.search(r"is multiplying by `(0\.\d+)`", sheet)[1]
            x = [[rounded(Decimal(s) * Decimal(factor), 3) for s in row] for row in x]
            assert [row[1:] for row in filled[4][1:]] == x
        ladder = dict(zip(*tables(sheet)[-4], strict=True))
        allowed = np.tri(words, dtype=int) if mask == "causal" else np.ones((words, words), int)
        exps = np.array([[Decimal(ladder[cell]) for cell in row] for row in x]) * allowed
        assert [row[1:-1] for row in filled[-3][1:]] == with_dashes(exps, mask)
        weights = [[rounded(e / sum(row), 3) for e in row] for row in exps]
        assert [row[1:] for row in filled[-2][1:]] == [[*row, "1.000"] for row in with_dashes(weights, mask)]
        outputs = np.array([[*map(Decimal, row)] for row in weights]) @ V
        assert [row[1:] for row in filled[-1][1:]] == [[rounded(o, 2) for o in row] for row in outputs]


@OF_EVERY_KIND
def test_the_worksheet_has_a_blank_for_every_number(mask, score):
    made = make(7, 2, 3, mask, score)
    sheet, key = (worksheet_markdown(parts(made, is_key)) for is_key in (False, True))
    blanks = [sum(row.count("______") for row in table) for table in tables(sheet)]
    shapes = [3 * 2, 3 * 2, 3 * 2, 3 * 3, *[3 * 3] * (score == "scaled"), 3 * 4, 3 * 4, 3 * 2]
    assert [n for n in blanks if n] == [shapes[0] - 1, *shapes[1:]]  # less the example
    assert "____" not in key and sheet.count("Answer: ____") == 4
    titles = re.findall(r"^## (\d+)\.", sheet, re.M)
    assert len(titles) == 6 + (score == "scaled") + (mask == "causal")


@OF_EVERY_KIND
@pytest.mark.parametrize(("dim", "words"), [(2, 3), (3, 2), (4, 4)])
def test_the_answers_are_the_formula_s_and_the_answer_sheet_has_a_cell_for_each(at, dim, words, mask, score):
    asked = ("--seed", "11", "--dim", str(dim), "--words", str(words), "--mask", mask, "--score", score)
    found, lines = record(*asked), here("exercise", *asked, "-f", "jsonl").out
    assert complaints(found) == [] and lines.count("\n") == 1
    assert (found["dim"], len(found["tokens"]), found["mask"], found["score"]) == (dim, words, mask, score)
    about = f"attn exercise {' '.join(asked)}"
    for usual in (" --words 3", " --mask none", " --score scaled"):
        about = about.replace(usual, "")
    assert found["inputs"]["about"] == about
    right = solved(found["inputs"], mask, score)
    assert_alike(found["answers"], right, within=1e-12)
    assert here("exercise", *asked, "-o", "sheet").code == 0
    empty = {name: [[None] * len(row) for row in matrix] for name, matrix in right.items()}
    empty = {name: matrix for name, matrix in empty.items() if score == "scaled" or name != "scaled_scores"}
    assert json.loads((at / "sheet" / "answer.json").read_text()) == empty


def test_printing_chooses_the_form_and_its_characters():
    plain = here("exercise")
    assert plain.out == here("exercise", "--seed", "0", "-f", "markdown", "-o", "-").out
    kinds = (("-f", "html"), ("--mask", "causal"))
    html, text = (attn("exercise", "--key", *kind, env={"PYTHONIOENCODING": "ascii"}) for kind in kinds)
    assert (html.code, text.code) == (0, 0) and (html.out + text.out).isascii() and "&#8730;" in html.out
    assert "\\u" not in text.out and "\\x" not in text.out
    assert "sqrt(2)" in text.out and re.search(r"\d\)?\*\(?-?\d", text.out)
    set_for_others = {"ATTN_SEED": "5", "ATTN_DIM": "300", "ATTN_MASK": "window:2", "ATTN_FORMAT": "bars"}
    assert here("exercise", env=set_for_others) == plain


def hostile():
    return make(7)._replace(tokens=("\\input{x}", "50%&$#_^~|<td>", "\x1b[31m`‮ 猫😀]"))


def test_the_latex_is_balanced_ascii():
    kinds = [make(7, 2, 3, *kind) for kind in KINDS] + [make(5, *size, "causal") for size in SIZES]
    for name, is_key in itertools.product([*kinds, hostile()], (False, True)):
        text = worksheet_latex(parts(name, is_key))
        assert balance(text) == 0 and re.sub(r"\\[$]", "", text).count("$") % 2 == 0, name
        assert text.isascii(), name
        used = set(",".join(re.findall(r"\\usepackage(?:\[.*?\])?\{(.*?)\}", text)).split(","))
        assert used == {"geometry", "amsmath", "array", "booktabs"}
    assert all(part.text.count("`") % 2 == 0 for part in parts(hostile(), True) if hasattr(part, "text"))


def test_no_form_obeys_a_token():
    text = latex_text('say "\\input{x}" 50% --key')
    assert text == r"say ``\textbackslash{}input\{x\}'' 50\% -\kern0pt{}-key"
    for is_key in (False, True):
        markdown, text = (write(parts(hostile(), is_key)) for write in (worksheet_markdown, worksheet_html))
        root = ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))
        assert not {"\x1b", "\u202e"} & {*markdown, *text} and "<td>" not in markdown
        for block in re.findall(r"(?:^\|.*\n)+", markdown, re.M):
            assert len({line.count(" | ") for line in block.splitlines() if ":--" not in line}) == 1
        tags = "body header h1 h2 p span div table caption thead tbody tr th td code sup"
        assert {element.tag for element in root.find("body").iter()} <= {*tags.split()}
        for part in ("@page { size: A4", "break-inside: avoid", ".boxes td { border: 1px"):
            assert part in root.find("head/style").text
        assert not re.search(r"https?:|url\(|<script|@import|\ssrc=|\shref=", text)


def test_a_folder_gets_the_sheet_the_key_and_data_and_what_a_student_wrote_is_not_replaced(tmp_path):
    folder = tmp_path / "new" / "sheet7"
    again = ("exercise", "--seed", "7", "-o", str(folder))
    assert attn(*again, env={"PYTHONHASHSEED": "1"}).code == 0
    forms = {"md": worksheet_markdown, "tex": worksheet_latex, "html": worksheet_html}
    for (is_key, name), suffix in itertools.product(((False, "exercise"), (True, "key")), forms):
        wanted = forms[suffix](parts(make(7), is_key))
        assert (folder / f"{name}.{suffix}").read_text(encoding="utf-8") == wanted
    assert read_given(folder / "inputs.json").ignored == ()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert here(*again).code == 0, "the same exercise replaces nothing"
    for name in ("exercise.md", "answer.json"):
        (folder / name).write_bytes(before[name] + b"mine")
        err = shell.refused(*again, code=73)
        assert name in err and "--force" in err
        assert here("exercise", "--seed", "8", "-o", str(folder)).code == 73
        mine = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert mine == before | {name: before[name] + b"mine"}
        (folder / name).write_bytes(before[name])
    (folder / "key.md").write_text("mine")
    assert here(*again, "--force").code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "file").write_text("")
    (tmp_path / "full" / "key.md").mkdir(parents=True)
    for place in ("file", "file/sheet", "full", "x" * 300):
        assert "bug" not in shell.refused("exercise", "-o", str(tmp_path / place), code=73)
    assert {path.name for path in (tmp_path / "full").iterdir()} == {"key.md"}
    assert here("exercise", "-o", str(tmp_path / "full"), "--force").code == 73
    assert here("exercise", "-o", "/dev/null").code == 73
    (tmp_path / "sheet.html").mkdir()
    assert here("exercise", "-o", str(tmp_path / "sheet.html")).code == 0


WRONG = """
--seed -1 => from 0 to 9,223,372,036,854,775,807. | --seed 9223372036854775808 => --seed cannot be | --seed x => --seed
--topic norm --mask causal => takes none of | --topic logit --score dot => takes none of
--topic norm --dim 3 => takes none of | --topic logit --words 2 => takes none of
--topic norm --seed -1 => --seed cannot be -1 | --topic logit --seed 99999999999999999999999 => --seed cannot be
--dim 1 => from 2 to 4: more | --dim 5 => from 2 to 4 | --words 1 => from 2 to 4 | --words 5 => from 2 to 4
--mask window:1 => causal | --score cosine => scaled | -f csv => markdown | --force => -o DIR
-o sheet.TEX => folder | -o sheet --key => --key | -o sheet -f latex => -f | 7 => 7
"""


def test_wrong_usage_is_one_line_and_a_record_has_every_key_of_the_schema(at):
    for line, said in cases(WRONG):
        assert said in shell.refused("exercise", *line)
    assert list(at.iterdir()) == []
    found = record()
    assert "`" not in json.dumps(found["questions"])
    for one in (found, found["inputs"], found["answers"]):
        for key in [*one]:
            kept = one.pop(key)
            assert complaints(found), key
            one[key] = kept
    assert complaints({**found, "added_later": 1}) == []
    wrong = {"seed": (-1, None), "dim": (5,), "mask": ("window:1",), "score": ("cosine",), "tokens": ([],)}
    wrong |= {"inputs": ({},), "answers": (None,), "questions": ([], [{"question": "Why?"}])}
    for key, value in ((key, value) for key, values in wrong.items() for value in values):
        assert complaints({**found, key: value}), (key, value)
    found["inputs"]["X"][0][0] = 0.5
    assert complaints(found)


TOPICS = ("norm", "logit")
OF_BOTH = pytest.mark.parametrize("topic", TOPICS)


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
    many = [effects.make(topic, seed) for seed in range(often(24))]
    assert len({json.dumps(one.inputs["X" if topic == "norm" else "U"]) for one in many}) > len(many) / 2
    for one in many:
        right = by_hand(one.inputs)
        assert isinstance(one.inputs["X" if topic == "norm" else "U"][0][0], int), "as a student writes it"
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
    made = effects.make(topic, 7)
    asked = sum(len(row) for step in made.answers.values() for row in step)
    text, key = (worksheet_markdown(effect_parts(made, is_key)) for is_key in (False, True))
    assert sum(cell == "______" for table in tables(text) for row in table for cell in row) == asked - 1
    assert "____" not in key and f"{made.command} -o FOLDER" in text
    page = worksheet_html(effect_parts(made))
    found = record("--topic", topic, "--seed", "7")
    assert page.count('class="line"') == len(found["questions"]) and complaints(found) == []
    assert "attnchar{" not in worksheet_latex(effect_parts(made, True)).partition("begin{document}")[2]


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
    (at / "a.json").write_text(json.dumps(record("--topic", TOPICS[topic == TOPICS[0]])["answers"]))
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
    huge = {name: (np.array(given[name]) * 5e307).tolist() for name in ("X", "stream") if name in given}
    (at / "sheet" / "inputs.json").write_text(json.dumps(given | {"words": ["zebra"]}))  # for more columns
    assert "zebra" not in graded(wrong)[0]["message"]
    misfit, misfits = {**given, "U": [[1]], "W_o": [[1]]}, "do not fit together"
    for broken, said in ((misfit, misfits), (given | huge, misfits), (without, "")):
        (at / "sheet" / "inputs.json").write_text(json.dumps(broken))
        assert said in shell.refused(*asked, code=65)
