"""attn heads: all layers and heads of a file or of a model, what each does, the rollout, and heads on random tokens."""

import json
import re

import numpy as np
import pytest

from attn_cli import Settings
from attn_cli.models.model_file import bundled
from attn_cli.pipeline.probe import of_stack, roles_on_repeats
from attn_cli.vectors import lookup
from tests.alike import FLOAT32, assert_alike
from tests.cli.tables import typed
from tests.models.checkpoints.by_hand import gpt2, small_bert, small_gpt2, word_pieces
from tests.models.checkpoints.test_parity import PAIRS, made
from tests.schema import printed
from tests.shell import attn, here, refused, rows, told
from tests.small_models import trace_checkpoint

N = 12
TOKENS = ["red", "cat", "blue", "dog", "big", "sun", "red", "cat", "blue", "dog", "big", "sun"]
ORDER = [["previous", "bag-of-words"], ["induction", "first"], ["same", "itself"]]
LINES = ["the cat walking home", "", "a b", "the a . , b"]


def roles(n, length):
    """Return the key that each query looks at, where `length` tokens come again."""
    at = np.arange(n)
    again = {"induction": np.maximum(at - length + 1, 0), "same": np.maximum(at - length, 0)}
    return {"previous": np.maximum(at - 1, 0), "itself": at, "first": at * 0} | again


def weights():
    even = np.tri(N) / np.tri(N).sum(axis=1, keepdims=True)
    one = {name: 0.9 * np.eye(N)[keys] + 0.1 * even for name, keys in roles(N, 6).items()}
    one["bag-of-words"] = even
    return np.array([[one[name] for name in layer] for layer in ORDER])


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "all.npz", attentions=weights(), tokens=TOKENS)
    return str(tmp_path / "all.npz")


def record(*args):
    return printed("heads", *args)


def test_every_head_of_a_file_has_the_name_of_what_it_does_and_in_colour_two_rows_share_a_line(file):
    found = record("--weights", file)
    assert (found["kind"], found["attention"], found["query_tokens"]) == ("heads", "masked", TOKENS)
    assert [[head["name"] for head in layer["heads"]] for layer in found["layers"]] == ORDER
    assert found["rollout"] is None
    assert found["rule"] == {"least": 0.5, "lead": 0.1, "fewest_rows": 2, "even": 0.8}  # as the guide has it
    shares = [one["share"] for one in found["clearest"] if one["name"] != "bag-of-words"]
    assert len(found["clearest"]) == 6 and shares == sorted(shares, reverse=True)
    assert found["clearest"][-1]["name"] == "bag-of-words"
    previous = found["layers"][0]
    assert previous["patterns"]["previous"]["rows"] == N - 1 and previous["patterns"]["next"]["rows"] == 0
    expected = np.mean([weights()[0, 0, i, i - 1] for i in range(1, N)])
    assert previous["heads"][0]["shares"]["previous"] == pytest.approx(expected)
    out = here("heads", "--weights", file, "--color", "always").out
    plain = re.sub("\x1b\\[[0-9;]*m", "", out)
    rows = [line for line in plain.splitlines() if line.strip() and set(line) <= set(" ▀▄·")]
    assert len(rows) % (N // 2) == 0 and rows[0].split()[0] == "▀▄" + "·" * (N - 2) and "· masked" in plain
    first_cell = out.split("▀")[0].rpartition("\x1b[")[2]
    assert "38;" in first_cell and "48;" in first_cell


def test_a_page_has_a_cell_for_each_weight_and_names_in_full(file):
    out = told("heads", "The cat sat on the mat", "-f", "html")
    assert out.count('class="band"') == 1 and out.count('class="heat') == 11 * 6 * 6
    assert "<p>coordination itself</p>" in out and "<p>previous</p>" in out
    layers = told("heads", "--weights", file, "-f", "html")
    assert layers.count('class="band"') == 3 and layers.count("<p>1 first token</p>") == 1


@pytest.mark.parametrize(("n", "size"), [(300, "37 or 38"), (304, "38")])
def test_a_long_text_and_many_heads_are_maps_of_blocks(n, size, tmp_path):
    draw = np.random.default_rng(0)
    rows = draw.random((2, 16, n, n)).astype(np.float32)
    np.save(tmp_path / "long.npy", rows / rows.sum(axis=-1, keepdims=True))
    out = told("heads", "--weights", str(tmp_path / "long.npy"), "--rollout", "--width", "80")
    assert max(map(len, out.splitlines())) <= 80
    assert f" {size} queries x {size} keys." in out and f"{n} x {n}: -f json has it" in out


def test_a_model_s_heads_are_those_that_attn_self_shows_and_without_a_model_the_bundled_ones(
    tokenizers, letters
):
    found = record("dabca", "-m", letters)
    assert found["attention"] == "masked" and found["query_tokens"] == list("dabca")
    for number in (0, 1):
        trace = trace_checkpoint("self", "dabca", None, Settings(layer=number, head="all"), letters)
        of_layer = np.array([head.weights for head in trace.heads])
        for head, own in zip(found["layers"][number]["heads"], of_layer, strict=True):
            assert head["shares"]["itself"] == pytest.approx(np.diag(own).mean(), abs=1e-5)
            assert head["shares"]["previous"] == pytest.approx(np.diag(own, -1).mean(), abs=1e-5)
            assert head["shares"]["next"] is None
    found = record("The cat sat on the mat")
    assert [head["head"] for head in found["layers"][0]["heads"]] == [*bundled("roles").head_names(0)]
    assert "Names such as " in told("heads", "The cat", "-p", "language", "-f", "markdown")
    masked = record("The cat sat on the mat", "--mask", "causal")
    assert masked["attention"] == "masked" and masked["layers"][0]["patterns"]["next"]["rows"] == 0
    assert record("The cat", "--context", "a mat", "--mask", "causal")["attention"] == "cross"


def test_an_encoder_and_a_decoder_have_three_kinds_of_heads(transformers, letters, tmp_path):
    made(transformers, PAIRS["t5"], 0, tmp_path)
    word_pieces(tmp_path)
    text, folder = ("the cats walking", "--context", "a b c"), ("-m", str(tmp_path))
    kinds = [((*text, *folder), "cross", 5), ((*text, *folder, "--kind", "cross"), "cross", 5)]
    kinds += [((*text, *folder, "--kind", "masked"), "masked", 7), (("a b c", *folder), "self", 5)]
    for args, kind, keys in kinds:
        found = record(*args)
        assert (found["attention"], len(found["key_tokens"])) == (kind, keys)
        own, given = (args[0], args[2]) if kind != "self" else (args[0], None)
        for layer in found["layers"]:
            settings = Settings(layer=layer["layer"], head="all")
            trace = trace_checkpoint(kind, own, given, settings, str(tmp_path))
            for head, of_head in zip(layer["heads"], trace.heads, strict=True):
                rows = of_head.weights[int(kind != "cross") :, 0]  # the first token's own row looks at itself
                assert head["shares"]["first"] == pytest.approx(rows.mean(), abs=1e-5)
    assert told("heads", *text, *folder).startswith("Cross-attention")
    one = ("-m", letters)
    assert_alike(record("dab", *one, "--kind", "masked"), record("dab", *one), FLOAT32)
    for args, says in (
        ((*text, *folder, "--kind", "self"), "takes one text"),
        (("a b c", *folder, "--kind", "cross"), "takes a second text"),
        ((*text, *folder, "--rollout"), "needs self-attention"),
    ):
        assert says in refused("heads", *args)


# Over many texts: the measures with their spread


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(LINES) + "\n")
    return str(tmp_path / "t.txt")


def weights_of(text, *options):
    """Every head of every layer (n, n) by its layer and name, as attn self shows them, and the tokens."""
    whole = printed("self", text, *options, "--head", "all", "--layer", "all")
    every = {(head["layer"], head["name"]): np.array(head["weights"]) for head in whole["heads"]}
    return every, whole["query_tokens"]


# Of the third, the first token's row sees nothing.
@pytest.mark.parametrize("options", typed("-m BERT | -p language | -m BERT --mask causal --without 0"))
def test_means_and_spreads_are_those_of_each_text_alone(options, texts, bert, tokenizers):
    options = [bert if word == "BERT" else word for word in options]
    found = record("--texts", texts, *options)
    lines = [line for line in LINES if line]
    alone = [record(line, *options) for line in lines]
    shown = [weights_of(line, *options) for line in lines]
    assert found["texts"] == 3 and found["tokens"] == sum(len(one["query_tokens"]) for one in alone)
    heads = [[head for layer in one["layers"] for head in layer["heads"]] for one in alone]
    assert len(found["heads"]) == len(heads[0])
    for head, *of_texts in zip(found["heads"], *heads, strict=True):
        assert head["head"] == of_texts[0]["head"] and sum(head["names"].values()) == 3
        assert head["names"][head["name"]] == max(head["names"].values())
        each = {"entropy": [one["entropy"] for one in of_texts]}
        each |= {name: [one["shares"][name] for one in of_texts] for name in of_texts[0]["shares"]}
        own = [(every[head["layer"], head["head"]], tokens) for every, tokens in shown]
        for measure in (distance, sink, punctuation):  # what these words say, in loops
            each[measure.__name__] = [measure(*one) for one in own]
        assert head["punctuation"]["texts"] == ("language" in options)  # the other reads no marks
        for name, values in each.items():
            values = [value for value in values if value is not None]
            assert head[name]["texts"] == len(values)
            near = 1e-6 if name in ("distance", "sink", "punctuation") else 1e-9
            if values:
                assert head[name]["mean"] == pytest.approx(np.mean(values), abs=near)
                assert head[name]["spread"] == pytest.approx(np.std(values), abs=near)


def distance(W, tokens):
    n = range(len(W))
    return np.mean([sum(W[i, j] * abs(i - j) for j in n) for i in n if W[i].any()])


def sink(W, tokens):
    n = range(len(W))
    return max(sum(W[i, j] for i in n if i != j) / (len(W) - 1) for j in n)


def punctuation(W, tokens):
    """The mean weight that goes to other marks, of the tokens that come after one."""
    marks = [j for j, token in enumerate(tokens) if token in ".,"]
    rows = [sum(W[i, j] for j in marks if j != i) for i in range(min(marks, default=len(W)) + 1, len(W))]
    return np.mean(rows) if rows else None


def test_rows_hold_every_measure(texts, tmp_path):
    made, found = rows("heads", "--texts", texts), record("--texts", texts)
    assert len(made) == 11 and record("--texts", texts, "--kind", "masked")["attention"] == "masked"
    for row, head in zip(made, found["heads"], strict=True):
        assert row["head"] == head["head"] and float(row["sink_mean"]) == pytest.approx(head["sink"]["mean"])
    piped = attn("heads", "--texts", "-", "-f", "jsonl", input="The cat sat.\nThe dog ran.\n")
    assert piped.code == 0 and json.loads(piped.out)["texts"] == 2
    parquet = pytest.importorskip("pyarrow.parquet")
    assert here("heads", "--texts", texts, "-o", str(tmp_path / "h.parquet")).code == 0
    table = parquet.read_table(tmp_path / "h.parquet").to_pylist()
    assert [one["head"] for one in table] == [row["head"] for row in made]
    assert table[0]["entropy_mean"] == pytest.approx(float(made[0]["entropy_mean"]))
    assert table[0]["separators_mean"] is None and made[0]["separators_mean"] == ""
    (tmp_path / "t.txt").write_text("cat\ndog\n")
    found = record("--texts", str(tmp_path / "t.txt"))
    assert found["notes"][0].startswith("One key") and found["heads"][0]["sink"]["mean"] is None
    assert "strongest sink" not in here("heads", "--texts", str(tmp_path / "t.txt")).out


def test_what_hides_masks_or_warms_a_models_heads_does_so_here_too(bert, tokenizers):
    for options in typed("--without 0 | --without cat -t 2 | --score cosine | --mask causal"):
        found = record("the cat cat", "-m", bert, *options)
        every, _ = weights_of("the cat cat", "-m", bert, *options)
        for layer in found["layers"]:
            for head in layer["heads"]:
                W = every[layer["layer"], head["head"]]
                bits = [-sum(w * np.log2(w) for w in row if w > 0) for row in W]
                assert head["entropy"] == pytest.approx(np.mean(bits), abs=1e-6)


# On random tokens that come again: attn heads --probe


@pytest.mark.parametrize("frames", [(0, 0), (1, 0), (1, 1)], ids=str)
def test_patterns_written_down_by_hand_have_a_score_of_one(frames):
    before, after = frames
    n, length = before + 2 * 5 + after, 5
    heads = roles(n, length)
    weights = np.array([np.eye(n)[keys] for keys in heads.values()])
    names = [*"<("[:before], *"abcde" * 2, *")"[:after]]
    given = np.tri(n, dtype=bool), names, [name in "<()" for name in names]
    for name, role in zip(heads, roles_on_repeats(weights, *given), strict=True):
        assert role.name == name and role.shares[name] == 1
        assert all(role.shares[other] <= 0.5 for other in ("induction", "same") if other != name)
    even = roles_on_repeats((np.tri(n) / np.tri(n).sum(axis=1, keepdims=True))[None], *given)
    again = range(before + length, before + 2 * length)
    assert even[0].shares["induction"] == pytest.approx(np.mean([1 / (i + 1) for i in again]))


def through(rows, gain):
    return (rows - rows.mean(axis=-1, keepdims=True)) * gain


def test_copying_is_what_the_eigenvalues_of_all_words_by_all_words_say(tmp_path, tokenizers):
    tensors = gpt2(3)
    tensors["h.1.attn.c_proj.weight"][4:] = 0  # head 1 of layer 1 gives nothing
    probe = record("--probe", "-m", small_gpt2(tmp_path / "gpt2", tensors))
    assert (probe["kind"], probe["length"], probe["times"]) == ("heads_by_probe", 5, 2)
    assert len({*probe["ids"]}) == 5 and probe["ids"][:5] == probe["ids"][5:]
    for head in probe["heads"]:
        place, h = f"h.{head['layer']}.", int(head["head"])
        W_v = tensors[f"{place}attn.c_attn.weight"][:, 16 + 4 * h : 20 + 4 * h]
        W_o = tensors[f"{place}attn.c_proj.weight"][4 * h : 4 * h + 4]
        E, last = tensors["wte.weight"].astype(float), tensors["ln_f.weight"]
        found = np.linalg.eigvals(through(through(E, tensors[f"{place}ln_1.weight"]) @ W_v @ W_o, last) @ E.T)
        share = found.sum().real / np.abs(found).sum() if found.any() else None
        assert head["copying"] == (share and pytest.approx(share, rel=1e-4))


@pytest.mark.parametrize("layer", [0, 2])
def test_copying_of_the_bundled_language_model_is_what_all_words_by_all_words_say(layer):
    stack, draw = bundled("language"), np.random.default_rng(0)
    read, scored = (draw.standard_normal((30, stack.dim)) for _ in range(2))
    layers = stack.encoders
    for h, share in enumerate(of_stack(stack, read, scored)(layer)):
        rows = read @ stack.W_in
        for n, one in enumerate(layers):
            if n == layer:
                head, d_v = one.attention.heads[h], one.attention.heads[h].W_v.shape[1]
                rows = rows @ head.W_v @ one.attention.W_o[h * d_v : (h + 1) * d_v]
            rows = through(through(rows, one.norm_1.gain), one.norm_2.gain)
        found = np.linalg.eigvals(rows @ stack.words.P @ scored.T)
        assert share == pytest.approx(found.sum().real / np.abs(found).sum(), abs=1e-4)


VOID = """
--tokenizer characters | --keep-punctuation | --hide-special | --renormalize | --pair x | --between a-b | --score dot
--mask-true allowed | --without x | --knock-out 0.0 | --knock-out-with mean | --weights w.npz | --texts t.txt
--rollout | --kind cross | --temperature 2 | --mask causal | --join-pieces | --context x
"""


def test_the_bundled_language_model_has_induction_heads_that_copy_and_a_seed_chooses_the_words():
    found = record("--probe")
    assert found["source"] == "language" and found["ids"] is None and found["notes"] == []
    assert len(set(found["tokens"])) == 50 and found["tokens"][:50] == found["tokens"][50:]
    named = {one["head"]: one for one in found["heads"]}
    for one in found["heads"]:
        looks, is_named = one["induction"], one["head"].startswith("induction")
        assert looks > 0.4 if is_named else looks < 0.05
        assert (one["name"] == "induction") == (looks > 0.5)  # one with less is mixed
        assert one["copying"] > 0.99 or not is_named
    assert named["induction"]["name"] == "induction"
    assert named["previous"]["name"] == "previous"
    first, *others = rows("heads", "--probe", "--layer", "2")
    assert [row["head"] for row in (first, *others)] == [*bundled("language").head_names(2)]
    assert float(first["copying"]) == pytest.approx(named[first["head"]]["copying"]) and first["next"] == ""
    *_, last = re.findall(r"(?m)^\| 2 \|(.*) \|$", here("heads", "--probe", "-f", "markdown").out)
    copying = [one["copying"] for one in found["heads"][-8:]]
    assert [*map(float, last.split("|"))] == pytest.approx(copying, abs=6e-3)
    assert record("--probe", "--seed", "1", "-p", "roles")["tokens"] != found["tokens"]
    for args in typed(VOID):
        assert refused("heads", "--probe", *args) == f"attn: {args[0]} and --probe exclude each other.\n"
    assert {*found["tokens"]} <= {*lookup.open_table("word2vec").words()}


@pytest.mark.parametrize("places", [4, 7, 12, 13, 25])
def test_the_random_tokens_are_as_many_as_there_are_places_for(places, tmp_path, tokenizers):
    found = record("--probe", "-m", small_bert(tmp_path / "bert", places=places))
    length = min(9, (places - 2) // 2)  # of nine words, which come twice, between [CLS] and [SEP]
    assert found["length"] == length and len(found["tokens"]) == 2 + 2 * length


def test_an_encoder_has_scores_of_both_sides_and_without_words_no_copying(models, bert, tokenizers):
    found = record("--probe", "-m", bert)
    assert found["tokens"][0] == "[CLS]" and found["tokens"][-1] == "[SEP]" and found["length"] == 5
    assert not {"[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]"} & {*found["tokens"][1:-1]}
    for head in found["heads"]:
        assert head["induction"] is None and head["next"] is not None and -1 <= head["copying"] <= 1
    out = told("heads", "--probe", "-m", str(models / "bare"), "--width", "80")
    assert "no language-model head in its files: no copying" in " ".join(out.split())
    assert "copying  " not in out and max(map(len, out.splitlines())) <= 80
