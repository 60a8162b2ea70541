"""attn patch: what comes back of a word when parts of one run are carried over into another."""

import csv
import io
import re

import numpy as np
import pytest

from attn_cli import Settings, trace_masked
from attn_cli.pipeline.effect import patch_of
from attn_cli.pipeline.passes import open_passes
from attn_cli.render.views.patch import screen
from attn_cli.settings.output import View
from tests.models.checkpoints.by_hand import small_bert, small_gpt2
from tests.schema import printed
from tests.shell import here

CAT = "The cat sat on the", "The cat slept on the"


def record(*args):
    found = printed("patch", *args)
    clean, corrupt = found["clean_difference"], found["corrupt_difference"]
    for name, shares in (found["recovered"] or {}).items():
        if shares is not None:
            expected = (np.array(found[name]) - corrupt) / (clean - corrupt)
            np.testing.assert_allclose(shares, expected, rtol=1e-9, atol=1e-12)
    return found


@pytest.fixture
def models(tmp_path):
    """The bundled model, one that reads on and one that fills gaps, each with texts that differ in one token."""
    letters = ["-m", small_gpt2(tmp_path / "letters"), "--target", "b", "--against", "c"]
    pieces = ["-m", small_bert(tmp_path / "pieces"), "--target", "cat", "--against", "walk"]
    found = [([*CAT], 2), (["abca", "abda", *letters], 2), (["abca", "abcd", *letters], 3)]
    return [*found, (["the [MASK] home", "a [MASK] home", *pieces], 1)]


def test_before_the_first_layer_the_token_that_differs_brings_all_back_and_the_others_nothing(models):
    for args, at in models:
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


def test_a_whole_stream_carried_over_gives_the_clean_run_and_nothing_the_corrupt_one(models):
    for args, _ in models:
        settings = Settings(model=args[3]) if "-m" in args else Settings()
        with open_passes([(args[0], None), (args[1], None)], settings) as (clean, corrupt):
            for own, other in zip(clean.stages(), corrupt.stages(), strict=True):
                streams, outputs = np.stack([own.x, other.x]), np.stack([own.output, other.output])
                both = clean.logits, corrupt.logits
                np.testing.assert_allclose(corrupt.onward(own.layer, streams), both, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(corrupt.after(other, outputs)[1], both[1], rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(clean.after(own, outputs)[0], both[0], rtol=1e-4, atol=1e-5)


def test_the_differences_are_of_the_words_that_the_model_says():
    found = record(*CAT)
    first, second = (
        {word.word: word for word in trace_masked(text, Settings(next=50)).next_words.words} for text in CAT
    )
    target, against = found["target"]["token"], found["against"]["token"]
    assert (target, against) == (next(iter(first)), next(iter(second)))
    for said, difference in ((first, "clean_difference"), (second, "corrupt_difference")):
        ratio = said[target].probability / said[against].probability
        assert found[difference] == pytest.approx(np.log(ratio), abs=1e-4)
    other = record(*CAT, "--target", "floor", "--against", target)
    assert (other["target"]["token"], other["against"]["token"]) == ("floor", target)


def test_equal_differences_have_no_share_and_where_the_stream_brings_nothing_only_heads_are_named():
    args = (CAT[0], CAT[0].replace(" ", "  "), "--target", "floor", "--against", "table")
    found = record(*args)
    assert found["recovered"] is None and found["clean_difference"] == found["corrupt_difference"]
    np.testing.assert_allclose(found["heads"], found["clean_difference"])
    assert "They are equal" in here("patch", *args).out
    with open_passes([(one, None) for one in CAT], Settings()) as (clean, corrupt):
        found = patch_of(clean, corrupt, CAT, None, None, lambda part: None)
    nothing = np.full_like(found.maps["residual"], found.corrupt)
    said = [*screen(found._replace(maps={**found.maps, "residual": nothing}), View())][-1].text
    assert said.startswith("Most comes back of the heads, with head 2.3")


def test_the_screen_names_the_strongest_sites_and_reckons_one_by_hand():
    found, out = record(*CAT), " ".join(here("patch", *CAT, env={"COLUMNS": "80"}).out.split())
    shares = np.array(found["recovered"]["heads"])
    layer, head = np.unravel_index(shares.argmax(), shares.shape)
    strongest = rf"of the heads, with head {layer}\.{head} .*{shares.max():.3f}"
    assert re.search(strongest.replace("0.", r"\."), out)
    number = r"([+-]\d*\.\d{4})"
    said = re.search(
        rf'By hand: corrupt {number}, with "sat/slept" before layer 1 {number}, clean {number}\. '
        rf"{number} of {number} comes back: (\d?\.\d+)\.",
        out,
    )
    without, middle, clean, back, gap, share = map(float, said.groups())
    ends = found["corrupt_difference"], found["residual"][1][2], found["clean_difference"]
    assert (without, middle, clean) == tuple(round(one, 4) for one in ends)
    assert (back, gap) == (round(middle - without, 4), round(clean - without, 4))  # of the numbers shown
    assert share == pytest.approx(back / gap, rel=5e-3)
    assert back / gap == pytest.approx(found["recovered"]["residual"][1][2], abs=1e-3)


def test_a_screen_of_a_long_text_starts_at_the_first_difference_and_other_forms_have_all(tmp_path):
    texts = [f"{'very ' * 12}{word} on the" for word in ("hot", "cold")]
    args = (*texts, "--target", "floor", "--against", "table")
    screen = here("patch", *args, env={"COLUMNS": "80"}).out
    assert "left out: the first 12 tokens" in screen and "hot/cold" in screen
    assert "very" not in screen.partition("layer\\token")[2]
    first = here("patch", *(" ".join(reversed(one.split())) for one in texts), *args[2:]).out
    assert "left out: the first 2 tokens" in first and "hot/cold" in first
    for form in ("html", "latex", "markdown"):
        assert here("patch", *args, "-f", form).out.count("very") == 12


def test_csv_has_a_row_for_each_part():
    found, ran = record(*CAT), here("patch", *CAT, "-f", "csv")
    rows = [*csv.DictReader(io.StringIO(ran.out))]
    assert len(rows) == 3 * 5 + 3 * 8
    for row in rows:
        at = int(row["layer"]), int(row["place"] or row["head"])
        assert float(row["difference"]) == pytest.approx(found[row["part"]][at[0]][at[1]])
        assert float(row["recovered"]) == pytest.approx(found["recovered"][row["part"]][at[0]][at[1]])
    assert (rows[2]["clean"], rows[2]["corrupt"]) == ("sat", "slept")


def test_a_figure_of_patches_and_of_effects_has_their_numbers_and_one_of_a_lens_its_words(tmp_path):
    pytest.importorskip("matplotlib", minversion="3.11")
    path = tmp_path / "x.svg"
    for command in (["patch", *CAT], ["effect", CAT[0]], ["effect", CAT[0], "--measure", "knock-out"]):
        ran = here(*command, "--figure", "heatmap", "-o", str(path))
        assert ran.code == 0, ran.err
        drawn, screen = path.read_text(), here(*command).out
        numbers = re.findall(r"[+-]\.\d{3}", screen.partition("head ")[2].partition("shades")[0])
        assert len(numbers) > 10 and all(f">{one}<" in drawn for one in numbers)
        assert ">head<" in drawn and ">layer<" in drawn
        refused = here(*command, "--figure", "links", "-o", str(path))
        assert refused.code == 2 and f"{command[0]} has no figure of links" in refused.err
    assert here("lens", CAT[0], "--figure", "heatmap", "-o", str(path)).code == 0
    assert all(f">{word}</text>" in path.read_text() for word in ("table", "rabbit", "album", "on"))
