"""Settings as Python has them: what a value can be, what counts beside what, and the words of errors."""

import dataclasses
import json
import math
import pickle

import pytest

from attn_cli import Settings, errors, settings
from attn_cli.errors import AttnError, InputError, NotFinite, SettingError, UsageError
from attn_cli.io.files import data_path
from attn_cli.settings import View, training
from attn_cli.settings.declare import area_of, as_typed, declared, size_of
from attn_cli.settings.output import chosen_keys, cut, is_json, keys_named, names_of
from tests.cli.tables import pairs

SIZES = {" 64 MB ": 64_000_000, "512kB": 512_000, "2G": 2 * 10**9, "7b": 7, "1": 1, "9" * 15: 10**15 - 1}
SIZES |= dict.fromkeys(("1" + "0" * 15, "0", "0k", "", "k", "1.5k", "-1", "٣", "1 kk"))
AREAS = {"1x50": (1, 50), "8.5X4": (8.5, 4)}
AREAS |= dict.fromkeys(("0.99x5", "5x50.1", "8", "1x2x3", "x", "nanx4", "4xinf"))


def test_sizes_are_whole_numbers_of_bytes_and_areas_lie_within_one_and_fifty_inches():
    assert {text: size_of(text) for text in SIZES} == SIZES
    assert {text: area_of(text) for text in AREAS} == AREAS


WARM = "Give a number above 0 (at least 1e-6): below 1 sharpens, above 1 flattens."
REFUSED = [  # a setting, a value, and what is said of it, with what it can have
    ("tokenizer", None, "None. Choose words, whitespace, characters."),
    *(("dim", one, f"{one!r}. Give a whole number from 1 to 100,000.") for one in ("4", 1.0, 0)),
    *(("temperature", one, f"{one}. {WARM}") for one in (math.inf, math.nan, 9e-7)),
    ("layer", "0000000001", "'0000000001'. Give a number from 0 to 100,000, all, or mean."),
    ("score", "\x1b" + "x" * 80, f"'^[{'x' * 59}'. Choose scaled, dot, cosine."),
]


def test_a_value_that_a_setting_cannot_have_is_told_with_what_it_can_have():
    for name, value, said in REFUSED:
        assert refusal(Settings, **{name: value}) == f"{name} cannot be {said} [--{name}]"
    wrong = "fields cannot be 'weigths'. Did you mean weights? attn schema names them all. [--fields]"
    assert refusal(View, fields="summary.key, weigths, sumary") == wrong
    assert Settings(layer="000000007").layer == 7 and Settings(layer="all").layer == "all"
    assert Settings(without=("a", "b", "a")).without == ("a", "b")


def test_options_are_typed_anew_where_they_are_not_the_default():
    made = Settings(score="dot", temperature=1 / 3, keep_punctuation=True, without=("a", "-b"), mask="causal")
    options = ["--keep-punctuation", "--score", "dot", "--temperature", "0.333333333333", "--mask", "causal"]
    assert as_typed(made) == [*options, "--without", "a", "--without", "-b"]
    short = ["--keep-punctuation", "--score", "dot", "-t", "0.333333333333"]
    assert as_typed(made, ("mask", "without"), short=True) == short
    assert as_typed(View(tidy=True, color="never")) == ["--tidy", "--color", "never"]


def told_by(name):
    data = data_path(name).read_bytes()
    about = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    return {key: json.loads(value) for key, value in about.items() if value[:1] == "{"}


def test_training_is_usually_as_the_bundled_files_say_that_they_were_made():
    vectors, model = told_by("word2vec.safetensors"), told_by("roles.safetensors")["facts"]["settings"]
    assert dataclasses.asdict(training.VectorTraining()) == vectors["settings"]
    ngrams, usual = training.SubwordTraining(), dataclasses.asdict(training.ModelTraining())
    assert [ngrams.buckets, ngrams.rank] == [vectors["ngrams"][key] for key in ("rows", "numbers")]
    own = {"relations": None, "epochs": 12, "bits": "16", "itself": 0}
    assert usual == {name: model[name] for name in usual} | own


def test_a_word_may_be_as_long_as_is_said_in_bytes():
    own = Settings(max_word="8b")
    settings.check_words(["éééé", "12345678", "ab"], own)
    for word, shown in {"ééééx": "ééééx", "1" * 30: "1" * 20, "\ud800" * 3: "<U+D800>" * 3}.items():
        with pytest.raises(InputError) as refused:
            settings.check_words(["a", word], own)
        assert refused.value.message == f"Token 1 ({shown}...) has more than 8 bytes."


def refusal(check, *args, **options):
    """Return what is said where something is refused; nothing where it is not."""
    try:
        check(*args, **options)
    except UsageError as error:
        return f"{error} [{error.option}]"
    return ""


def own(text):
    """Return the settings that are written as name=value."""
    given = dict(one.split("=") for one in text.split() if "=" in one)
    for name, value in given.items():
        one = declared(Settings)[name]
        given[name] = (value,) if one.is_repeated else bool(value) if one.type is bool else value
        given[name] = int(value) if one.type is int else given[name]
    return Settings(**given)


# What is checked, settings, and what is said, but for what is always said.
BESIDE = """
model seed=1 => --seed changes nothing in a model on disk: nothing in it is random
model layout=in-out => --layout changes nothing in a model on disk: its files say how its weights are laid out
model positions=none => --positions changes nothing in a model on disk: it encodes positions in its own way
model pad_side=left => --pad-side changes nothing in a model on disk: one text is read, without padding
model tokenizer=characters => --model takes the place of --tokenizer | model mask=causal score=dot =>
model keep_punctuation=1 => --model takes the place of --keep-punctuation
without_model next=1 => --next needs a model that says what comes next. Give one with -p language or --model
without_model pair=a => --pair needs a model that reads pairs of texts. Give one with --model
without_model join_pieces=1 says => --join-pieces needs a model whose tokens are word pieces. Give one with --model
without_model next=1 next_at=all says => | without_model next=0 next_at=last => | without_model next=0 says =>
shaping renormalize=1 => --renormalize requires --hide-special, or --between
shaping renormalize=1 hide_special=1 => | shaping renormalize=1 between=a-b => | measure renormalize=1 head=1 =>
measure measure=norm head=1 knock_out=0.1 => | measure measure=norm-residual head=mean =>
measure measure=norm head=rollout => --head rollout, which has no values
measure measure=norm renormalize=1 => --renormalize: rows of norms do not sum to one
measure measure=norm-residual head=1 => --head 1: it is of the layer as a whole
measure measure=norm-residual knock_out=0.1 => --knock-out, whose heads are still in the sum
layered layer=mean => --layer mean applies only to saved weights. Try --layer all, or attn show FILE --layer mean
layered layer=all => --layer all needs a model that has layers. Give one with --model, or -p roles-deep or language
"""
ALWAYS = {"model": "{1}. Leave out {0}, or --model. [--model]"}
ALWAYS |= {"measure": "--measure {2.measure} does not apply to {1}. Leave one of them out. [--measure]"}


def test_what_does_not_go_together_is_refused_in_words_and_what_does_is_not():
    for case, said in pairs(BESIDE).items():
        name, text = case.split(maxsplit=1)
        option = f"--{text.partition('=')[0].replace('_', '-')}"
        wanted = ALWAYS.get(name, "{1}. [{0}]").format(option, said, own(text)) if said else ""
        more = [True] if text.endswith("says") else []
        assert refusal(getattr(settings, f"check_{name}"), own(text), *more) == wanted
    for text, head in {
        "measure=norm-residual": "mean",
        "measure=norm-residual head=mean": "mean",
        "": None,
    }.items():
        assert settings.check_measure(own(text)).head == head
    for text, words in {"next=0": 0, "next_at=all": 5, "next=2 next_at=all": 2, "": None}.items():
        assert settings.with_words_at_each(own(text)).next == words
    said = refusal(settings.with_words_at_each, own("next=0 next_at=all"))
    assert said.endswith(" --next 0. Try --next 3, or leave out --next-at. [--next-at]")


# Settings, what else is known, and where the first of them has an effect, which it has not here.
IDLE = """
dim=8 => only with random vectors | dim=8 embedding=random => | positions=sinusoidal => | heads=2 words=0 =>
layout=in-out projection=likeness => only with weights from a file | layout=in-out projection=W.json =>
layout=in-out projection=W.json learned=1 => only with weights from a file | layout=in-out words=0 =>
pad_side=left => only with --pad | pad_side=left pad=1 => | mask_true=allowed => only with a mask from a file
mask_true=allowed mask=causal => only with a mask from a file | mask_true=allowed mask=m.txt =>
tokenizer=characters words=0 => only with a text | keep_punctuation=1 words=0 => only with --tokenizer words
keep_punctuation=1 tokenizer=whitespace => only with --tokenizer words | keep_punctuation=1 =>
layer=1 => only with a learned model | layer=1 learned=1 => | positions=none has_x=0 =>
positions=sinusoidal has_x=0 => only where X is known, not with Q, K and V | heads=2 embedding=random =>
oov=zero embedding=random => only with word vectors | oov=zero words=0 => only with word vectors
heads=2 projection=identity => | oov=zero => | heads=2 => the default, are its own
"""


def test_an_option_that_counts_for_nothing_beside_others_is_noted_and_no_other():
    for case, where in pairs(IDLE).items():
        parts = [part.split("=") for part in case.split()]
        known = {name: value == "1" for name, value in parts if name in ("words", "learned", "has_x")}
        given = " ".join(f"{name}={value}" for name, value in parts if name not in known)
        said = f"--{parts[0][0].replace('_', '-')} has an effect {where}."
        if where and parts[0][0] == "heads":
            said = f"--heads splits the identity projection; the heads of roles, {where}."
        assert settings.unused(own(given), **known) == ([said] if where else []), case


# A command and settings; and the projection, the mask and the next words that it shows with them.
CHOSEN = """
masked => language causal None | masked layer=1 => language causal None | masked mask=none => language none None
masked embedding=word2vec => language causal None | masked embedding=random => None causal None
masked heads=2 => None causal None | masked head=subject => None causal None | masked model=m => None None 5
masked positions=sinusoidal => None causal None | masked model=m next=0 => None None 0
cross => likeness None None | cross head=likeness => likeness None None | cross oov=zero => likeness None None
cross oov=model => None None None
cross head=all => None None None | cross layer=0 => None None None | cross projection=roles => roles None None
self => None None None | self model=m => None None None | self mask=causal => None causal None
"""


def test_what_a_command_shows_when_nothing_is_asked_gives_way_to_what_is_asked():
    for case, wanted in pairs(CHOSEN).items():
        command, _, text = case.partition(" ")
        found = settings.settings_of(command, own(text))
        assert f"{found.projection} {found.mask} {found.next}" == wanted, case
        assert found.kind_of_text == ("masked" if found.mask == "causal" else "self")
    assert own("model=m mask=causal").kind_of_text == "self"


def test_a_token_is_found_as_written_then_in_any_case_then_by_its_number():
    tokens = ("Us", "us", "straße", "7", "335", *["x"] * 30, "fox")
    for query, rows in {"us": (1,), "US": (0, 1), "STRASSE": (2,), "7": (3,), "4": (4,), "35": (35,)}.items():
        assert settings.find_rows(query, tokens) == rows
    hint = "Give a token of the text, or its number from 0 to 35."
    for query, option, said in (
        *((one, "--query", f"'{one}' to look from. {hint}") for one in ("36", "336", "0000000004")),
        ("fxo", "--versus", f"'fxo' to look at. Did you mean fox? {hint}"),
        ("\x1b" + "a" * 70, "--swap", f"'^[{'a' * 59}' to replace. {hint}"),
    ):
        assert refusal(settings.find_rows, query, tokens, option) == f"There is no token {said} [{option}]"


def test_where_a_result_goes_and_whether_it_is_json(tmp_path):
    (tmp_path / "there").write_text("")
    devices = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/null")
    names = (*devices, ".", "no.txt", tmp_path / "there")
    places = [View(), *(View(output=str(name)) for name in names)]
    assert [view.to_standard_output for view in places] == [True] * 5 + [False] * 4
    assert [view.to_ordinary_file for view in places] == [False] * 7 + [True] * 2
    views = (View(format="bars"), View(as_bars=True), View(format="json"))
    assert [view.has_bars for view in views] == [True, True, False]
    of_json = ((None, "x.JSON"), ("", "x.jsonl"), ("json", "x.txt"), ("jsonl", None), (None, None, "batch"))
    assert all(is_json(*asked) for asked in of_json)
    others = ((None, "x.csv"), ("csv", "x.json"), (None, None), ("table", None, "self"))
    assert not any(is_json(*asked) for asked in others)


def test_chosen_keys_stand_in_the_order_of_a_record_with_schema_and_kind():
    assert chosen_keys(None, "self") is chosen_keys("weights,all", "self") is None
    found = chosen_keys("heads.layer, weights ,heads.name,kind", "self")
    assert names_of(found) == ["schema", "kind", "weights", "heads.name", "heads.layer"]
    assert keys_named(["a.b", "a", "a.c", "d.e.f"]) == {"a": None, "d": {"e": {"f": None}}}
    record = {"schema": "attn/1", "kind": "self", "weights": None, "heads": [{"name": "0", "q": 2}, {}]}
    heads = [{"name": "0", "layer": None}, {"name": None, "layer": None}]
    assert cut(record, found) == record | {"heads": heads}
    assert cut({"learned": None}, {"learned": {"model": None}}) == {"learned": None}
    for fields, said in {
        "schema,kind": "--fields names no key but schema and kind, which are always there. Try: --fields ",
        "acts": "JSON of kind self has no key 'acts'. attn schema names the keys of each kind. [--fields]",
        "heads.nam": "heads has no key 'nam'. Did you mean heads.name? Its keys are name, layer, ",
        "score.x": "score has no key 'x'. Ask for score. [--fields]",
        "mask_views": "mask_views is there with --show mask only. [--fields]",
    }.items():
        assert refusal(chosen_keys, fields, "self").startswith(said), fields
    for what in ("--show mask", None):
        assert list(chosen_keys("mask_views", "self", what)) == ["schema", "kind", "mask_views"]


# Errors, and their words


def test_names_in_a_sentence_are_cut_counted_and_never_none():
    assert [errors.shortened("a" * n) for n in (24, 25)] == ["a" * 24, "a" * 24 + "..."]
    names = [f"n{i}" for i in range(9)]
    assert errors.listed(names) == "n0, n1, n2, n3, n4, n5, n6, n7 and 1 more"
    assert errors.listed(names[:8]) == "n0, n1, n2, n3, n4, n5, n6, n7" and errors.listed([]) == "nothing"
    assert errors.listed(["a" * 30, "\x1b"], 2, 30) == f"{'a' * 30}, ^["
    assert [errors.count(n, "key", "keys") for n in (0, 1, 1200)] == ["0 keys", "1 key", "1,200 keys"]
    assert [errors.fixed(one, 1, "e") for one in (-4e-7, -0.0)] == ["-4.0e-07", "0.0e+00"]
    assert errors.near_names("SCALD", ["Scaled", "dot"]) == ["Scaled"]
    assert [errors.as_utf8(word) for word in ("caf\udce9", "caf\udcc3\udca9")] == ["caf\ufffd", "café"]
    assert [errors.shell_quote(word, double=True) for word in ("wow!", "it's")] == ["'wow!'", '"it\'s"']
    assert errors.visible("a\x7f\U000e01efb!\ufe0f") == "a^?<U+E01EF>b!\ufe0f"


def test_an_error_is_a_sentence_with_the_first_line_of_its_hint_and_names_the_place_in_the_whole():
    error = AttnError("No.", "Try this:\nattn self")
    assert str(error) == "No. Try this:" and str(AttnError("No.", "\nx")) == "No."
    assert error.as_record()["error"] == {"code": 70, "message": "No.", "hint": "Try this:", "line": None}
    assert SettingError("pad_side", "'up'", "").of_option == "--pad-side cannot be 'up'."
    found = NotFinite(1, 2, ("a", "b"), ("c", "d", "e"))
    assert found.message == "The score of query 1 (b) and key 2 (e) is not a finite number."
    assert found.among([5, 7]).message == "The score of query 7 and key 2 is not a finite number."
    others = (UsageError("No.", "Try.", "--mask"), SettingError("seed", "-1", "Give 0."), errors.NoMemory())
    for one in (found, *others):
        again = pickle.loads(pickle.dumps(one))  # as it comes from another process
        assert (type(again), str(again), vars(again)) == (type(one), str(one), vars(one))
    value = NotFinite(None, 1, keys=("c", "d")).among([5, 7])
    assert value.message == "The value vector of key 1 holds NaN or infinity, and it is attended to."
