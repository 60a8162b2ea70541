"""attn effect and attn patch: parts that sum to the logit, heads knocked out, and parts carried into another run."""

import json
import re
from functools import partial
from xml.sax.saxutils import escape

import numpy as np
import pytest

from attn_cli import Settings, trace_masked
from attn_cli.pipeline.effect import effect_of, patch_of
from attn_cli.pipeline.passes import look, open_passes
from tests.cli.tables import typed
from tests.models.checkpoints.by_hand import GEMMA2, byte_pairs, gemma2, gpt2, saved, small_gpt2
from tests.schema import printed
from tests.shell import here, plain, rows

TEXT = "The cat sat on the"
TABLE, DOG = ("--target", "table"), ("--against", "dog")
CAT = "The cat sat on the", "The cat stepped on the"


def told(*args):
    found = printed("effect", *args)
    parts = [one["value"] for one in found["parts"]]
    assert found["sum"] == pytest.approx(sum(parts))
    if found["softcap"] is None:
        assert found["sum"] == pytest.approx(found["logit"], rel=1e-5, abs=1e-6 * sum(map(abs, parts)))
    return found


def test_the_language_model_s_parts_sum_to_the_logit_of_its_word_and_a_difference_is_of_two_words_parts():
    found, trace = told(TEXT), trace_masked(TEXT, Settings(next=3))
    said = trace.next_words.words[0]
    assert found["target"] == {"token": said.word, "id": said.id} and found["against"] is None
    assert (found["logit"], found["probability"]) == pytest.approx((said.logit, said.probability), rel=1e-4)
    assert (found["place"], found["rank"], found["query_tokens"]) == (4, 1, TEXT.split())
    kinds = {one["part"] for one in found["parts"]}
    assert kinds >= {"head", "mlp", "attention bias", "embedding", "norm bias", "output bias"}
    assert len([one for one in found["parts"] if one["part"] == "head"]) == 24
    moved = found["moved"]
    assert moved["value"] == pytest.approx(sum(moved["values"]), rel=1e-4)
    assert abs(moved["value"]) == max(abs(one["value"]) for one in found["parts"] if one["part"] == "head")
    table, dog, both = told(TEXT, *TABLE), told(TEXT, "--target", "dog"), told(TEXT, *TABLE, *DOG)
    assert both["against"] == dog["target"] and dog["rank"] > 1
    for first, second, less in zip(table["parts"], dog["parts"], both["parts"], strict=True):
        assert less["value"] == pytest.approx(first["value"] - second["value"], abs=1e-5)
    moved = told(TEXT, "--target", "dog", "--against", "table")["moved"]  # the strongest head, up or down
    assert [moved[name] for name in ("layer", "head")] == [both["moved"][name] for name in ("layer", "head")]
    assert moved["value"] == pytest.approx(-both["moved"]["value"], abs=1e-5)


@pytest.mark.parametrize("times", [1.0, 0.5, 3.0])
def test_parts_that_a_model_multiplies_as_it_adds_them_count_so(times, tmp_path, tokenizers):
    """A Granite: a Llama that adds what its heads and its network make times residual_multiplier."""
    config = {"model_type": "granite", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= {"num_key_value_heads": 1, "intermediate_size": 4, "residual_multiplier": times}
    config |= {"embedding_multiplier": 2.0, "tie_word_embeddings": True}
    tensors = {name: T for name, T in gemma2().items() if "feedforward" not in name}
    tensors["norm.weight"] = np.ones(4, np.float32)
    folder = saved(tmp_path / "granite", config, tensors)
    byte_pairs(folder)
    found = told("dabc", "-m", folder)
    assert {one["part"] for one in found["parts"]} >= {"head", "mlp", "embedding"}


@pytest.mark.parametrize("more", [(), ("--knock-out-with", "mean")])
def test_a_model_without_a_head_is_the_model_whose_w_o_has_nothing_for_it(letters, tmp_path, more):
    found = told("ab ab", "-m", letters, "--target", "b", "--measure", "knock-out", *more)
    assert [(one["layer"], one["head"]) for one in found["knock_outs"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    if not more:
        T = gpt2(places=20)
        W = T["h.0.attn.c_proj.weight"]
        T["h.0.attn.c_proj.weight"] = np.concatenate([W[:4], np.zeros_like(W[4:])])  # nothing for head 1
        without = told("ab ab", "-m", small_gpt2(tmp_path / "without", T), "--target", "b")
        for name in ("logit", "probability"):
            assert found["knock_outs"][1][name] == pytest.approx(without[name], rel=1e-4)
    assert {one["logit"] for one in found["knock_outs"]}.isdisjoint({found["logit"]})


def test_a_head_that_copies_and_one_that_gives_nothing_are_told_apart(tmp_path):
    """Both attend alike; head 0 writes each word's own vector into the stream, head 1 nothing."""
    T = {name: M.copy() for name, M in gpt2(places=20).items()}
    for n in (0, 1):
        T[f"h.{n}.mlp.c_proj.weight"][:] = 0
        T[f"h.{n}.attn.c_proj.weight"][4:] = 0
    found = told("ab ab", "-m", small_gpt2(tmp_path / "copies", T), "--measure", "knock-out")
    heads = {(one["layer"], one["head"]): one["value"] for one in found["parts"] if one["part"] == "head"}
    left = {(one["layer"], one["head"]): one["logit"] - found["logit"] for one in found["knock_outs"]}
    for layer in (0, 1):
        assert heads[layer, 1] == left[layer, 1] == 0
        assert abs(heads[layer, 0]) > 1e-3 < abs(left[layer, 0])


def test_a_table_has_every_part_and_the_word_is_the_likeliest_that_has_a_vector():
    table = rows("effect", TEXT, "--measure", "knock-out")
    found = told(TEXT, "--measure", "knock-out")
    assert [float(row["value"]) for row in table] == pytest.approx([one["value"] for one in found["parts"]])
    left = [float(row["logit_without"]) for row in table if row["logit_without"]]
    assert left == pytest.approx([one["logit"] for one in found["knock_outs"]], rel=1e-5)
    found = told("the")  # [unknown], all other words as one, is likelier than any
    last = json.loads(here("lens", "the", "-f", "json").out)["layers"][-1]["positions"][0]
    first, second, *_ = last["words"]
    assert (found["target"]["id"], found["rank"]) == (first["id"], 1)
    assert told("the", "--target", "[unknown]")["probability"] > found["probability"]
    assert "rank 2 among its words" in plain(here("effect", "the", "--target", second["word"]).out)


def test_an_encoder_fills_its_mask_and_a_cap_is_told(bert, tmp_path, tokenizers):
    found = told("the [MASK] sat", "-m", bert)
    assert found["fills"] and found["query_tokens"][found["place"]] == "[MASK]"
    assert {"segment", "position", "output layer bias"} <= {one["part"] for one in found["parts"]}
    assert told("the [MASK]", "-m", bert, "--target", "##s")["target"]["token"] == "##s"  # as errors name it
    capped = saved(tmp_path / "gemma2", GEMMA2 | {"final_logit_softcapping": 1.5}, gemma2())
    byte_pairs(capped)
    assert (told("dabc", "-m", capped)["softcap"], found["softcap"]) == (1.5, None)


# attn patch: what comes back of a word when parts of one run are carried over into another


def record(*args):
    found = printed("patch", *args)
    clean, corrupt = found["clean_difference"], found["corrupt_difference"]
    for name, shares in (found["recovered"] or {}).items():
        if shares is not None:
            expected = (np.array(found[name]) - corrupt) / (clean - corrupt)
            np.testing.assert_allclose(shares, expected, rtol=1e-9, atol=1e-12)
    return found


@pytest.fixture
def pairs(letters, bert):
    """The bundled model, one that reads on and one that fills gaps, each with texts that differ in one token."""
    of_letters, pieces = typed(f"-m {letters} --target b --against c | -m {bert} --target cat --against walk")
    found = [([*CAT], 2), (["abca", "abda", *of_letters], 2), (["abca", "abcd", *of_letters], 3)]
    return [*found, (["the [MASK] home", "a [MASK] home", *pieces], 1)]


def test_before_the_first_layer_the_token_that_differs_brings_all_back_and_later_a_whole_stream(pairs):
    for args, at in pairs:
        found = record(*args)
        stream, ends = np.array(found["residual"]), (found["corrupt_difference"], found["clean_difference"])
        assert abs(ends[1] - ends[0]) > 1e-3
        expected = np.where(np.arange(stream.shape[1]) == at, ends[1], ends[0])
        np.testing.assert_allclose(stream[0], expected, rtol=1e-5, atol=1e-5)
        if "[MASK]" not in args[0]:  # causal: what stands before it is the same in both runs
            np.testing.assert_allclose(stream[:, :at], ends[0], rtol=1e-5)
        if at == found["place"]:  # no other token differs, so that all layers have it from there
            np.testing.assert_allclose(stream[:, at], ends[1], rtol=1e-5)
        assert np.abs(found["recovered"]["heads"]).max() > 1e-3
        assert found["cross_heads"] is None
    for args, _ in pairs:
        settings = Settings(model=args[3]) if "-m" in args else Settings()
        with open_passes([(args[0], None), (args[1], None)], settings) as (clean, corrupt):
            for own, other in zip(clean.stages(), corrupt.stages(), strict=True):
                streams, outputs = np.stack([own.x, other.x]), np.stack([own.output, other.output])
                both = clean.logits, corrupt.logits
                np.testing.assert_allclose(corrupt.onward(own.layer, streams), both, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(corrupt.after(other, outputs)[1], both[1], rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(clean.after(own, outputs)[0], both[0], rtol=1e-4, atol=1e-5)


def test_the_differences_are_of_the_words_that_the_model_says_and_equal_ones_have_no_share():
    found = record(*CAT)
    each = [trace_masked(text, Settings(next=50)).next_words.words for text in CAT]
    first, second = ({word.word: word for word in words} for words in each)
    target, against = found["target"]["token"], found["against"]["token"]
    assert (target, against) == (next(iter(first)), next(iter(second)))
    for said, difference in ((first, "clean_difference"), (second, "corrupt_difference")):
        ratio = said[target].probability / said[against].probability
        assert found[difference] == pytest.approx(np.log(ratio), abs=1e-4)
    other = record(*CAT, "--target", "table", "--against", target)
    assert (other["target"]["token"], other["against"]["token"]) == ("table", target)
    args = (CAT[0], CAT[0].replace(" ", "  "), "--target", "floor", "--against", "table")
    found = record(*args)
    assert found["recovered"] is None and found["clean_difference"] == found["corrupt_difference"]
    np.testing.assert_allclose(found["heads"], found["clean_difference"])


def test_work_says_how_much_of_it_is_done():
    with open_passes([(one, None) for one in CAT], Settings()) as (clean, corrupt):
        works = [partial(effect_of, clean, None, None, True, False), partial(look, clean, range(5), 1, ())]
        for work in (*works, partial(patch_of, clean, corrupt, CAT, None, None)):
            done = list[float]()
            work(done.append)
            assert done == ([1] if work.func is look else [0, 1 / 3, 2 / 3])


def test_a_screen_of_a_long_text_starts_at_the_first_difference_and_other_forms_have_every_part(tmp_path):
    texts = [f"{'very ' * 12}{word} on the" for word in ("hot", "cold")]
    args = (*texts, "--target", "floor", "--against", "table")
    screen = here("patch", *args, env={"COLUMNS": "80"}).out
    assert "left out: the first 12 tokens" in screen and "hot/cold" in screen
    assert "very" not in screen.partition("layer\\token")[2]
    for form in ("html", "latex", "markdown"):
        assert here("patch", *args, "-f", form).out.count("very") == 12
    found, table = record(*CAT), rows("patch", *CAT)
    assert len(table) == 3 * 5 + 3 * 8
    for row in table:
        at = int(row["layer"]), int(row["place"] or row["head"])
        assert float(row["difference"]) == pytest.approx(found[row["part"]][at[0]][at[1]])
        assert float(row["recovered"]) == pytest.approx(found["recovered"][row["part"]][at[0]][at[1]])
    assert (table[2]["clean"], table[2]["corrupt"]) == ("sat", "stepped")


def test_a_figure_of_patches_and_of_effects_has_their_numbers_and_one_of_a_lens_its_words(tmp_path):
    pytest.importorskip("matplotlib", minversion="3.11")
    path = tmp_path / "x.svg"
    for command in (["patch", *CAT], ["effect", CAT[0]], ["effect", CAT[0], "--measure", "knock-out"]):
        assert here(*command, "--figure", "heatmap", "-o", str(path)) == (0, "", "")
        drawn, screen = path.read_text(), here(*command).out
        numbers = re.findall(r"[+-]\.\d{3}", screen.partition("head ")[2].partition("shades")[0])
        assert len(numbers) > 10 and all(f">{one}<" in drawn for one in numbers)
        assert ">head<" in drawn and re.search(r"rotate\(-90 [^>]*>layer<", drawn)
    assert here("lens", CAT[0], "--figure", "heatmap", "-o", str(path)).code == 0
    layers, drawn = printed("lens", CAT[0])["layers"], path.read_text()
    assert ">token<" in drawn and re.search(r"rotate\(-90 [^>]*>layers<", drawn)
    words = {said["words"][0]["word"] for layer in layers for said in layer["positions"]}
    assert len(words) > 5 and all(f">{escape(word)}</text>" in drawn for word in words)
