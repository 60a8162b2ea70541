"""The first screen of `attn explain`: what it says, that its numbers are the trace's, and that it fits."""

import math
import re

import pytest

from attn_cli import Settings, trace_self
from attn_cli.render.numbers import four
from tests.shell import here
from tests.thorough import like_cases

FOX = "The quick brown fox jumped over the lazy dog"
NUMBER = r"(-?\d+\.?\d*(?:e[+-]\d+)?)"


def lines(*args, width="80"):
    ran = here("explain", *args, "--width", width)
    assert ran.code == 0, ran.err
    return ran.out.splitlines()


@pytest.fixture(scope="module")
def screen():
    return lines(FOX)


@pytest.fixture(scope="module")
def said(screen):
    return " ".join(" ".join(screen).split())


@pytest.fixture(scope="module")
def trace():
    return trace_self(FOX, Settings())


@pytest.fixture(scope="module")
def row(trace):
    return trace.row(4)


def numbers(pattern, text):
    """The numbers that stand where the pattern has #."""
    found = re.search(re.escape(pattern).replace(r"\#", NUMBER).replace("#", NUMBER), text)
    assert found, pattern
    return [float(number) for number in found.groups()]


def near(one, other, digits=2):
    assert one == pytest.approx(other, abs=0.51 * 10.0**-digits)


# It fits


def test_the_story_of_nine_words_has_at_most_sixty_lines(screen):
    assert len(screen) <= 60


def test_its_first_24_lines_hold_the_sentence_the_row_and_the_because(screen):
    first = "\n".join(screen[:24])
    assert FOX in first and 'Why "fox" and not "over"' in first and "By content alone" in first
    for word in FOX.split():
        assert re.search(rf"^{word} +{NUMBER} +{NUMBER}", first, re.MULTILINE)


def test_its_length_grows_with_the_words_and_not_with_the_width_of_the_vectors():
    narrow, wide = (lines("a b c d e f", "-e", "random", "--dim", d) for d in ("16", "200"))
    assert abs(len(wide) - len(narrow)) <= 2
    more = lines(" ".join(f"word{i}" for i in range(30)), "-e", "random")
    assert len(more) < len(wide) + 3 * 24


@pytest.mark.parametrize("width", ["40", "60", "100"])
def test_no_line_is_wider_than_the_screen(width):
    assert max(map(len, lines(FOX, width=width))) <= int(width)


# The ten questions of a student, each answered by a line of the screen, whose numbers are the trace's


def test_1_what_is_a_token_and_why_has_the_same_word_the_same_vector(said, trace):
    for token, number in zip(trace.query_tokens, trace.query_ids, strict=True):
        assert f"{token} {number}" in said
    assert "A token, a word or a mark, has an id and one vector of 100 numbers in any text" in said
    assert (trace.x_query[0] == trace.x_query[6]).all()  # The and the


def test_2_where_the_hundred_numbers_come_from(said, trace):
    assert f"{trace.x_query.shape[1]} numbers in any text; word2vec learned it from the words near it" in said


def test_3_why_query_key_and_value_are_three(said, trace):
    assert (
        "searches with its query q, is matched by its key k, passes on its value v. Scores are not symmetric"
        in said
    )
    there, back = numbers('q·k of "jumped" with "fox" is #, reversed #', said)
    near(there, trace.shown.scores[4, 3])
    near(back, trace.shown.scores[3, 4])
    assert there != back


def test_4_why_scores_are_divided_by_the_root_of_d_k(said, trace, row):
    before = numbers("Why divide by √d_k = √32? Sums of 32 products spread widely: # to #", said)
    after = numbers("before, # to # after", said)
    for shown, scores in ((before, row.scores), (after, row.scaled)):
        near(shown[0], min(scores))
        near(shown[1], max(scores))
    (undivided,) = numbers('Without it, "fox" would get #: hardly a mix', said)
    exps = [math.exp(x * math.sqrt(32)) for x in row.masked]
    near(undivided, exps[3] / sum(exps), 3)
    assert undivided > 0.95 > 2 * trace.weights[4, 3]


def test_5_why_the_exponential_and_why_a_row_sums_to_one(said, trace, row):
    lead, _, ratio = numbers('ratios: # above "over" is e^# = # times its weight', said)
    near(lead, row.masked[3] - row.masked[5], 4)
    near(ratio, trace.weights[4, 3] / trace.weights[4, 5])
    assert math.exp(lead) == pytest.approx(ratio, abs=0.01)
    assert "Softmax: exp / sum of exps; rows sum to 1." in said


def test_6_what_an_output_is(said, trace):
    shares = numbers(
        'The output of "jumped", its new vector, is # v("fox") + # v("over") + # v("brown") + ...', said
    )
    for shown, weight in zip(shares, sorted(trace.weights[4])[::-1], strict=False):
        near(shown, weight, 3)
    (cosine,) = numbers("closest by cosine: fox #", said)
    output, fox = trace.output[4], trace.x_key[3]
    near(cosine, output @ fox / math.hypot(*output) / math.hypot(*fox), 3)


def test_7_what_a_causal_mask_is_for(said, trace):
    hidden = '"jumped" also looks at the # words after it (#). A causal mask (attn masked) hides them'
    words, weight = numbers(hidden, said)
    assert words == 4
    near(weight, trace.weights[4, 5:].sum(), 3)
    assert "a model that predicts the next word may not see it" in said


def test_8_which_text_has_the_rows_under_cross_attention(said):
    assert "attn cross TEXT CONTEXT (rows: TEXT looks; columns: CONTEXT)" in said
    shown = here("cross", "she", "likes coffee").out
    assert re.search(r"^she ", shown, re.MULTILINE) and "likes" in shown.splitlines()[2]


def test_9_what_a_head_is_and_why_there_are_several(said, trace):
    assert f"Head relations, one of {len(trace.head_names)}, was taught" in said
    assert "governor (the word it depends on)" in said
    assert (
        "A head is one set of W_q, W_k, W_v: one question to the text. Another question takes another head."
        in said
    )
    right, fixed = numbers("in unseen text, right for #% (best fixed distance: #%)", said)
    near(right, 100 * trace.learned.accuracy, 1)
    near(fixed, 100 * trace.learned.baseline, 1)


def test_10_why_fox_and_not_lazy(screen, row):
    table = {line.split()[0]: line.split() for line in screen[5:16]}
    for word, j in (("fox", 3), ("lazy", 7)):
        near(float(table[word][1]), row.scaled[j], 4)
        near(float(table[word][2]), row.position[j], 4)
    assert table["lazy"][-2:] == [f"{row.masked[3] - row.masked[7]:.4f}", "distance"]
    asked = " ".join(lines(FOX, "--versus", "lazy")).replace("  ", " ")
    lead, content, distance = numbers(
        'Why "fox" and not "lazy"? Its sum is # higher: content puts it # ahead, distance # ahead.', asked
    )
    near(lead, row.masked[3] - row.masked[7], 4)
    near(content, row.scaled[3] - row.scaled[7], 4)
    near(distance, row.position[3] - row.position[7], 4)
    assert 'Against "lazy", distance decides.' in asked


# The because, for any row


@pytest.mark.parametrize("text", [FOX, "The cat sat on the mat", "Children like warm bread and cold milk"])
@pytest.mark.parametrize("head", ["relations", "subject", "previous"])
def test_the_sentence_and_the_numbers_are_one(text, head):
    settings = Settings(head=head)
    for i, token in enumerate(text.split()):
        trace = trace_self(text, settings)
        said = " ".join(" ".join(lines(text, "--head", head, "-q", str(i))).split())
        one = trace.because(i)[0]
        if one.content == 0:
            assert f"content is the same, distance puts it {four(one.distance)} ahead" in said
            continue
        lead, content, way, distance, along = re.search(
            rf"Its sum is {NUMBER} higher: content puts it {NUMBER} (ahead|behind), "
            rf"distance {NUMBER} (ahead|behind)",
            said,
        ).groups()
        near(float(lead), one.lead, 4)
        near(float(content) * (1 if way == "ahead" else -1), one.content, 4)
        near(float(distance) * (1 if along == "ahead" else -1), one.distance, 4)
        assert f", {one.decided} decides." in said, token


def test_without_a_distance_term_it_says_so():
    said = " ".join(" ".join(lines("she", "--context", "likes coffee")).split())
    assert "There is no distance term: content alone decides." in said
    assert "distance =" not in said


def test_a_masked_rival_is_said_to_be_masked():
    said = " ".join(" ".join(lines(FOX, "--mask", "causal", "-q", "jumped", "--versus", "dog")).split())
    assert 'The mask: "jumped" may not look at "dog".' in said


def test_keys_that_are_written_alike_are_named_by_their_places():
    said = " ".join(" ".join(lines("the cat and the dog", "-q", "cat", "--versus", "the")).split())
    assert '"the" (0)' in said and '"the" (3)' in said


# What it leaves to --steps, and what small inputs show


def test_the_story_has_no_matrix_of_weights_that_nobody_checks_and_steps_has():
    told, walked = "\n".join(lines(FOX)), "\n".join(lines(FOX, "--steps"))
    assert "W_k  " not in told and "entropy" not in told
    assert "W_k  " in walked and "entropy" in walked and "Why divide by √d_k = √32?" in walked


def test_a_small_input_shows_every_matrix_as_long_as_it_fits(at):
    (at / "tiny.txt").write_text("she 0.2 0.9\nlikes 0.5 0.1\ncoffee 0.9 0.3\n")
    told = lines("she likes coffee", "-e", str(at / "tiny.txt"))
    assert "Every matrix" in told and len(told) <= 60
    assert any(line.startswith("X ") and " V" in line for line in told)
    assert "Every matrix" not in lines(FOX)


@pytest.mark.parametrize(
    "options",
    [
        ("-q", "the"),
        ("--head", "all"),
        ("--head", "mean"),
        ("--score", "dot"),
        ("--pad", "2"),
        ("--top", "2"),
        ("-p", "roles-deep"),
        ("--tokenizer", "characters"),
        ("-e", "random", "--positions", "sinusoidal"),
        ("--mask", "window:1"),
        ("--round", "1"),
        ("-t", "0.5"),
    ],
    ids=" ".join,
)
@like_cases
def test_the_story_is_told_of_every_kind_of_attention(options):
    said = " ".join(lines(FOX, *options))
    assert "One row by hand" in said and "Next: attn explain" in said and "nan" not in said.lower()


def test_words_without_vectors_are_explained():
    said = " ".join(" ".join(lines("The zorblatt sat", "-q", "zorblatt", "--oov", "zero")).split())
    assert "word2vec has no vector for it" in said and "Note:" in said


# The row by hand of the other commands: numbers first, then the winner and its rivals


def test_a_row_is_a_table_first_and_then_the_winner_and_a_rival_by_hand():
    out = here("self", FOX, "-q", "jumped", "--width", "80").out
    assert out.index("mostly in") < out.index('Why "fox"') < out.index("fox: q·k =")
    assert re.findall(r"^  (\w+): q·k", out, re.MULTILINE) == ["fox", "over"]


def test_by_hand_all_writes_out_every_product_of_every_key():
    out = here("self", FOX, "-q", "jumped", "--by-hand", "all").out
    assert re.findall(r"^  (\w+): q·k", out, re.MULTILINE) == FOX.split()
    line = next(line for line in out.splitlines() if line.startswith("  fox: q·k"))
    products, total = line.partition(" = ")[2].rsplit(" = ", 1)
    factors = [tuple(map(float, re.sub(r"[()]", "", term).split("×"))) for term in products.split(" + ")]
    assert len(factors) == 32 and "more:" not in out
    assert sum(a * b for a, b in factors) == pytest.approx(float(total), abs=0.01)


def test_what_is_left_out_can_be_seen():
    out = here("self", FOX, "-q", "jumped").out
    assert "more:" in out and "--by-hand all" in out


# What holds for odd inputs


def said_of(*args):
    return " ".join(" ".join(lines(*args)).split())


def test_of_several_keys_alike_none_is_said_to_be_chosen_by_content():
    said = said_of("fox fox", "-q", "0")
    assert "content is the same, distance puts it" in said
    assert "Content alone cannot choose, for several keys share its largest value" in said


def test_equal_weights_are_said_to_be_equal():
    said = said_of("no no no", "-e", "random")
    assert "Both get the same weight." in said and "Why divide" not in said and " above " not in said


def test_the_runner_up_is_the_second_by_score_where_both_weights_are_zero():
    trace = trace_self("the fox sat on the rock", Settings(query="sat", temperature=1e-4))
    row = trace.row(2)
    order = sorted(range(6), key=lambda j: -row.masked[j])
    assert row.weights[order[1]] == 0 and trace.because(2)[0].rival_index == order[1]


def test_the_temperature_is_no_part_of_the_division_that_is_explained():
    trace = trace_self("the fox sat", Settings(query="sat", temperature=0.05))
    after = numbers("before, # to # after", said_of("the fox sat", "-q", "sat", "-t", "0.05"))
    near(after[0], min(trace.row(2).scores) / math.sqrt(32))
    near(after[1], max(trace.row(2).scores) / math.sqrt(32))


def test_places_that_were_added_to_the_vectors_are_said_to_be_part_of_content():
    said = said_of("fox fox", "-p", "identity", "--positions", "sinusoidal")
    assert "the words' places are part of it" in said and "x = word + P" in said
    assert "content alone decides" not in said


def test_layers_that_know_the_order_are_not_said_to_be_blind_to_it():
    said = said_of("the fox sat on the rock", "-p", "roles-deep", "-q", "the")
    assert "blind" not in said and "enters this layer as 192 numbers" in said


def test_padding_is_not_counted_among_the_words_that_a_causal_mask_hides():
    assert "from every word those after it" in said_of(
        "the fox sat", "--mask", "causal", "--pad", "2", "-q", "sat"
    )
    said = said_of("the fox sat", "--mask", "causal", "--pad", "2", "--pad-side", "left", "-q", "fox")
    assert 'hides the 1 word after "fox"' in said and "<pad> gives" not in said


def test_under_a_mask_the_mix_is_of_the_words_that_may_be_seen():
    assert "a mix of the words that it may look at" in said_of(FOX, "--mask", "window:1")


def test_a_word_without_a_vector_does_not_speak_for_all():
    said = said_of("zzqx wqqz fox", "-p", "identity", "-q", "fox")
    assert 'but not that of "zzqx" and others' in said
    assert 'as for "zzqx", word2vec has no vector' in said_of("zzqx fox", "-p", "identity", "-q", "zzqx")


@pytest.mark.parametrize("command", ["self", "explain", "compare"])
def test_the_mean_of_heads_has_the_formula_of_a_mean(command):
    more = {"compare": ["--vary", "temperature=1,2"], "explain": ["--steps"]}.get(command, [])
    args = ("a b c", "-e", "random", "-p", "random", "--heads", "2", "--head")
    said = " ".join(here(command, *args, "mean", *more).out.split())
    assert "weights = the mean of the heads' softmax(q·k / √2" in said
    assert "mean of the heads" not in here(command, *args, "1", *more).out


def test_the_mean_of_heads_is_not_given_the_output_of_one_of_them():
    assert "The output of" not in said_of(FOX, "--head", "mean")


def test_of_several_rows_it_says_which_one_is_worked_and_how_many_are_left():
    said = said_of("the cat the dog the hen the cow", "-q", "the")
    assert "1 more row matches" in said and 'Where these numbers come from: the row of "the" (0)' in said


def test_a_rival_in_a_long_text_has_its_line_in_the_table():
    words = " ".join(f"word{i}" for i in range(60))
    out = "\n".join(lines(words, "-e", "random", "-q", "5", "--versus", "word50"))
    assert re.search(rf"^word50 +{NUMBER}", out, re.MULTILINE)


def test_versus_that_names_the_winner_says_so():
    assert '"sat" is the winner.' in said_of("the fox sat", "-q", "fox", "--versus", "sat")


@pytest.mark.parametrize("format", ["csv", "bars", "json"])
def test_a_rival_that_there_is_not_is_refused_in_every_format(format):
    assert here("self", FOX, "-q", "fox", "--versus", "cow", "-f", format).code == 2


def test_scores_as_large_as_numbers_go_leave_no_infinity_and_no_endless_digits(at):
    given = '{"Q":[[1,0]],"K":[[1,0],[0,1]],"V":[[1],[2]],"position_scores":[[1e308,-1e308]]}'
    (at / "c.json").write_text(given)
    for options in ((), ("-f", "json"), ("-f", "svg")):
        ran = here("compute", str(at / "c.json"), "-q", "0", *options)
        assert ran.code == 0 and not re.search(r"\b(inf|nan|Infinity|NaN)\b", ran.out)
    assert (
        max(map(len, here("compute", str(at / "c.json"), "-q", "0", "--width", "80").out.splitlines())) <= 80
    )


def test_large_vectors_leave_no_infinity_either(at):
    (at / "big.txt").write_text("fox 1.2e154 0\nrock 0 1.1e154\nhen -1e154 0\n")
    for format in ("table", "json"):
        ran = here(
            "explain", "fox rock hen", "-e", str(at / "big.txt"), "-t", "0.7", "-q", "fox", "-f", format
        )
        assert ran.code == 0 and ran.err == "" and not re.search(r"\b(inf|nan)\b", ran.out)
