"""Settings from files: attn.toml, the user's own, and attn config, which tells what is in force."""

import json
import os
import re
from pathlib import Path
from unittest import mock

import pytest

from attn_cli.cli import config_files as config
from attn_cli.cli.options import SETTINGS
from attn_cli.cli.origins import HERE
from tests.cli.tables import pairs
from tests.cli.test_startup import imported
from tests.schema import complaints
from tests.shell import attn, here, record, refused, terminal

RANDOM = ("-e", "random")


@pytest.fixture
def place(at: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(at))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(at / ".config"))
    (at / ".config" / "attn").mkdir(parents=True)
    return at


def write(text: str | bytes) -> None:
    Path(HERE).write_bytes(text.encode() if isinstance(text, str) else text)


def write_own(text: str) -> None:
    Path(".config/attn/config.toml").write_text(text, encoding="utf-8")


def temperature(*args: str, env: dict[str, str] | None = None) -> object:
    return json.loads(here("self", "a b", *RANDOM, "-f", "json", *args, env=env).out)["temperature"]


def blamed(*args: str, env: dict[str, str] | None = None) -> str:
    return refused(*args, code=78, env=env)


def test_what_is_typed_beats_a_variable_that_beats_a_file_and_every_type_of_value_arrives(place):
    write_own("temperature = 2")
    assert temperature() == 2
    write("temperature = 3")
    assert temperature(env={"ATTN_TEMPERATURE": "4"}) == 4
    assert temperature("-t", "5", env={"ATTN_TEMPERATURE": "4"}) == 5
    # A command's table beats its file, and the nearer file beats the other's table.
    write_own("temperature = 2\n[self]\ntemperature = 3\n[masked]\ntemperature = 9\n")
    texts = {"seed = 1\n": 3, "temperature = 4\n": 4, "temperature = 4\nself.temperature = 5\n": 5}
    for text, used in texts.items():
        write(text)
        assert temperature() == used
    write(
        'keep-punctuation = true\nmask_true = "allowed"\ntop = 1\nformat = "json"\nembedding = "random"\n'
        "dim = 0x8\n[self]\nsteps = true\nhead = 1\nheads = 2\ntemperature = 2\n"
    )
    found = json.loads(here("self", "A cat.").out)
    assert found["query_tokens"] == ["A", "cat", "."]
    assert (found["head"], found["temperature"], found["embedding"]["dim"]) == ("1", 2.0, 8)
    assert len(found["links"]) == 3 and found["heads"]
    Path("mine.txt").write_text("a 1 2\nb 3 4\n")
    write('embedding = "~/mine.txt"\nkeep-punctuation = true')
    found = json.loads(here("self", "a b .", "-f", "json", "--no-keep-punctuation").out)
    assert found["embedding"]["dim"] == 2 and found["dropped"] == ["."]


def test_every_option_with_a_variable_can_stand_in_a_file_and_is_not_used_where_it_is_not_taken(place):
    write('pad = 3\nformat = "markdown"\ntidy = true\ndim = 3\nseed = 7\ntop = 5\n[vectors]\ntop = 2')
    ran = here("vectors", "nearest", "cat")
    assert ran.code == 0 and ran.out.count("\n") == 2
    assert ran.err == "attn: settings from attn.toml: top.\n"
    assert here("schema").err == ""
    ran = here("example")  # the list of examples has no Markdown: it is listed as it always is
    assert (ran.code, ran.err) == (0, "attn: settings from attn.toml: dim, seed, pad, top.\n")
    write('embedding = "random"\nfigure = "links"\ndpi = 200\nsize = "8x4"\nfields = "weights"')
    assert (
        here("self", "a b").err == "attn: settings from attn.toml: embedding.\n"
    )  # the rest is of no screen
    write('width = 60\nmask = "causal"\nseed = 3')
    for name, weight in (("key", 1), ("answer", 2)):
        Path(f"{name}.json").write_text(f'{{"weights": [[{weight}]]}}')
    ran = here("check", "answer.json", "--expect", "key.json")
    assert (ran.code, ran.err) == (1, "attn: settings from attn.toml: width.\n")
    assert here("exercise").out == here("exercise", "--seed", "0", "--mask", "none").out
    with_variable = {name for name, setting in SETTINGS.items() if setting.variable}
    assert set(config.IN_FILES) == with_variable - {"query"}
    assert {setting.type for setting in config.IN_FILES.values()} <= set(config.TAKES)


def test_the_folders_file_is_named_once_where_it_changes_something(place):
    write('temperature = 2\nscore = "dot"\n')
    assert here("self", "a b", *RANDOM).err == "attn: settings from attn.toml: score, temperature.\n"
    assert here("self", "a b", *RANDOM, "-t", "1", "--score", "scaled").err == ""
    assert here("vectors", "info").err == ""
    write('tokenizer = "characters"')
    ran = here("self", "the cat", *RANDOM, "-q", "cat")
    assert ran.code == 2 and ran.err.startswith(
        "attn: settings from attn.toml: tokenizer.\nattn: There is no "
    )
    write_own("temperature = 3")
    Path(HERE).unlink()
    assert here("self", "a b", *RANDOM).err == ""
    assert here("self", "a b", *RANDOM, env={"XDG_CONFIG_HOME": "relative", "HOME": ""}).code == 0
    Path(".config/attn/config.toml").unlink()
    assert not imported("self", "a b") & {"attn_cli.cli.config_files", "tomllib"}


def test_an_error_is_json_where_a_file_asks_for_json_and_a_typed_suffix_beats_it(place):
    write('temperature = 2\ntidy = true\n[self]\nformat = "json"')
    ran = here("self", "")
    assert ran.code == 65 and json.loads(ran.err)["error"]["code"] == 65
    assert json.loads(here("self", "a", "--bogus").err)["error"]["code"] == 2
    assert here("masked", "").err.endswith("Type some words.\n")
    for more in (("-f", "table"), ("-o", "x.csv")):
        assert here("self", "", *more).err.splitlines()[-1].startswith("attn: There is no token")
        assert here("self", "a b", *RANDOM, *more).code == 0  # a wish for tidy csv is none for a table
    assert Path("x.csv").read_text().startswith("query,key,weight")
    ran = here("self", "a b", *RANDOM)
    assert json.loads(ran.out) and ran.err == "attn: settings from attn.toml: temperature, format.\n"


MISTAKES = """
temperature = "0.5" => 1 temperature cannot be "0.5": it takes a number. Remove the quotes.
# a comment / / seed = 1 / keep_punctation = true => 4 Did you mean keep-punctuation?
embedding = 7 => 1 embedding cannot be 7: it takes text in quotes. Put it in quotes.
seed = 1 / bogus = [ / 1, / 2 / ] => 2 'bogus' | by_h = true => 1 Did you mean by-hand?
seed = 1 / output = "x.json" => 2 output cannot be set in a file. Type it: -o FILE
keep-punctuation = true / keep_punctuation = false => 2 is set in line 1 already
[self] / query = "cat" => 2 query cannot be set in a file. Type it: -q TOKEN | score = dot => 1 invalid value
seed = 9223372036854775808 => 1 seed cannot be a number of that many digits | context = "x" => 1 'context'
temperature = true => 1 temperature cannot be true: it takes a number. | top = [1] => 1 top cannot be a list
steps = "yes" => 1 steps cannot be "yes": it takes true or false. | seed = 1 / [[self]] => 2 self is a command
seed = 1.0 => 1 seed cannot be 1.0: it takes a whole number. | temprature = 1 => 1 Did you mean temperature?
[vectors.nearest] / top = 1 => 1 no table [vectors.nearest]. A table | temperature = 0 => 1 --temperature cannot be 0.0
seed = 1 / [self] / top = 1 / bogus = 2 => 4 'bogus' | seed = 1 / self = {top = 1, bogus = 2} => 2 'bogus'
temperature = nan => 1 --temperature cannot be nan | seed = 1 / head = "x => 2 unterminated string
seed = 1 / self . 'bo gus' = 2 => 2 'bo gus' | seed = 1 / [slef] => 2 Did you mean [self]?
seed = 1 / / seed = 2 => 3 cannot overwrite | seed = 1 / top = -1 => 2 --top cannot be -1
top = 2020-01-01 => 1 top cannot be a date | mask = "diagonal" => 1 no mask 'diagonal'
embedding = "zzzq" => 1 no vectors 'zzzq' | masked = true => 1 masked is a command
seed = 1 / self.bogus = 2 => 2 'bogus' | seed = 1 / score dot => 2 expected '='
seed.x.y = 1 => 1 no table [seed.x] | score.x = 1 => 1 no table [score] | embedding = "~root" => 1 no vectors '~root'
temperature = " " => 1 it takes a number. Remove the line. | score = "dto" => 1 Did you mean dot? Change that line.
seed = "0123456789012345678901234567890123456789" => 1 cannot be "0123456789012345678901234567890123456789": it
"""
QUOTED = {  # with more than one kind of quotes, ends of lines, escapes
    'seed = 1\n"te\\u006dp" = 2\n': "2 'temp'",
    'embedding = """\nseed = 1\nbogus = 2\n"""\nbogus = 3': "5 'bogus'",
    "embedding = '''\n\\'''\nbogus = 3": "3 'bogus'",
    'embedding = """a\\"""\nbogus = 2\n#"""""\nseed = 1\nbogus = 3': "5 'bogus'",
    'head = "# [" # bogus = 1 """\n\n\nbogus = 3': "4 'bogus'",
    "seed = 1\r\n\r\nbogus = 3\r\n": "3 'bogus'",
    "\ufeffbogus = 3": "1 'bogus'",
    "[ 'cross' ]\n[self] # [x]\nhead = '\\'\ntop = \"\\\"=\"\n": "4 top cannot be",
    'embedding = "a\\u0000b"': "1 embedding cannot be",
    'seed = 1\nhead = """x\n\n\n': "2 unterminated string",
}


@pytest.mark.parametrize(("text", "told"), [*pairs(MISTAKES).items(), *QUOTED.items()])
def test_a_mistake_is_refused_by_its_line(text, told, place):
    write(re.sub(" ?/ ?", "\n", text))
    line, _, said = told.partition(" ")
    found = blamed("self", "a b", *(() if "embedding" in text else RANDOM))
    assert f"attn.toml, line {line}: " in found and said in found


def test_a_file_that_is_no_text_of_settings_is_one_line_and_help_version_and_schema_do_not_mind_it(place):
    files = {
        "line 2: this is not UTF-8": b"seed = 1\nhead = '\xff'\n",
        "UTF-16": "seed = 1".encode("utf-16"),
        "10,000,000 bytes is above the limit": b"#" * 10_000_000,
        "attn.toml holds a value": b"seed = " + b"9" * 5000,
        "holds a value that": b"seed = " + b"[" * 5000,
        "holds a value that is not a setting's": b"seed = [" + b"1,\n" * 5000 + b"]",
        "line 1: ": b"seed = \x00",
        "attn.toml": b"a." * 800 + b"a = 1\n",
    }
    for said, content in files.items():
        write(content)
        assert said in blamed("self", "a b")
    assert "attn.toml" in blamed("self", "a b", "-f", "json")
    Path(HERE).unlink()
    kinds = (os.mkdir, os.rmdir, "a directory"), (os.mkfifo, os.unlink, "not a regular file")
    for make, remove, said in kinds:
        make(HERE)
        assert f"Cannot read attn.toml: it is {said}." in blamed("self", "a b")
        remove(HERE)
    write_own("seed = 1\nbogus = 2")
    assert "~/.config/attn/config.toml, line 2: " in blamed("self", "a b")
    with mock.patch.dict(os.environ, {"HOME": "/"}):
        assert config.short_path("/a/b") == "/a/b"
    write_own("")
    for name in ("\\u001b[31m", "\\u202e", "[red]", "\\n"):
        for text, told in ((f'"{name}" = 1', "there is no setting"), (f'seed = "{name}"', "seed cannot be")):
            write(text)
            said = blamed("self", "a")
            assert told in said and "\x1b" not in said and "\u202e" not in said
    for text in ("temperature = 5\nbroken", "temperature = 5"):
        write(text)
        assert "[default: 1.0]" in here("self", "--help").out
        assert here("--version").code == here("--help").code == here("schema").code == 0
    write("temperature = 5\nbroken")
    asked = {"_ATTN_COMPLETE": "complete_bash", "COMP_WORDS": "attn self --te", "COMP_CWORD": "2"}
    assert attn(env=asked).out.split() == ["--temperature"]


def listed(*args: str, env: dict[str, str] | None = None) -> dict[str, dict[str, object]]:
    found = record("config", *args, env=env)
    assert complaints(found) == []
    return {one["name"]: one for one in found["settings"]}


def test_config_tells_each_setting_and_where_it_comes_from(place):
    write_own('\npalette = "greys"')
    write("# mine\ntemperature = 0.5\ntop = 3\n[masked]\ntop = 4\n")
    found = listed(env={"ATTN_SEED": "7"})
    not_standing = {"between", "measure", "output", "versus", "title", "without", "pair"}
    not_standing |= {"knock_out", "knock_out_with"}
    assert list(found) == [name.replace("_", "-") for name in SETTINGS if name not in not_standing]
    assert (found["temperature"]["value"], found["temperature"]["line"]) == (0.5, 2)
    assert found["temperature"]["file"] == HERE
    assert found["palette"]["file"] == str(place / ".config/attn/config.toml")
    assert (found["seed"]["value"], found["seed"]["variable"]) == (7, "ATTN_SEED")
    assert (found["score"]["value"], found["score"]["default"]) == (None, "scaled")
    assert {one["source"] for one in found.values()} == {"default", "environment", "file"}
    chosen = listed(env={"ATTN_SCORE": "dot"})["score"]
    assert (chosen["value"], chosen["default"]) == ("dot", "scaled")
    assert found["top"]["value"] == listed("vectors")["top"]["value"] == 3
    assert (listed("masked")["top"]["value"], listed("masked")["top"]["line"]) == (4, 5)
    files = "attn.toml: read.\n  Tables for single commands: [masked].\n~/.config/attn/config.toml: read.\n"
    assert here("config").out.endswith(files) and "Tables for" not in here("config", "masked").out
    assert re.search("\nfull +false +default\n", here("config").out)
    Path(HERE).unlink()
    Path(".config/attn/config.toml").unlink()
    assert listed("vectors")["top"]["value"] == 10
    assert listed("schema") == {}
    assert here("config", "schema").out.startswith("This command has no settings.\n\n")
    assert here("config").out.endswith("attn.toml: not there.\n~/.config/attn/config.toml: not there.\n")
    write('temperature = 0.5\ndim = 3\n[self]\nseed = 5\nembedding = "random"')
    found = json.loads(here("self", "a b", "-f", "json").out)
    used = {name: (found["embedding"] | found)[name] for name in ("seed", "dim", "temperature")}
    assert used == {name: listed("self")[name]["value"] for name in used}
    assert used == {"seed": 5, "dim": 3, "temperature": 0.5}


def test_config_points_at_variables_that_are_none_of_ours_and_refuses_what_a_command_would_refuse(place):
    env = {"ATTN_TEMPRATURE": "1", "ATTN_": "x", "ATTN_MIRROR": "http://x", "ATTN_SEED": "", "ATTN_EMPTY": ""}
    env |= {"ATTN_PAGER": "less"}
    ran = here("config", env=env)
    assert "ATTN_TEMPRATURE is not a variable of attn. Did you mean ATTN_TEMPERATURE?\n" in ran.out
    assert "ATTN_ is not a variable" in ran.out
    assert not any(name in ran.out for name in ("MIRROR", "PAGER", "EMPTY"))
    for name, value in (("ATTN_TEMPERATURE", "0"), ("ATTN_SCORE", "x")):
        assert name in blamed("config", env={name: value})
    write("bogus = 1")
    assert "attn.toml, line 1" in blamed("config")
    Path(HERE).unlink()
    assert here("config", "slef").code == 2


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_config_fits_its_terminal_and_cuts_nothing(columns, place):
    write('embedding = "/a/very/long/path/with/many/folders/and/日本語/vectors.txt"')
    ran = terminal("config", columns=columns)
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= columns
    assert "/vectors.txt" in "".join(ran.out.split()) and "attn.toml,line1" in "".join(ran.out.split())
