"""Help in two lengths: -h fits a screen, --help has everything; both fit their width."""

import pytest

from attn_cli.cli.app import COMMANDS
from attn_cli.cli.help import USUAL, Row, _choice_row, _table, own_options
from attn_cli.settings.declare import GROUPS
from tests.cli.tables import typed
from tests.docs import commands, named
from tests.shell import here, terminal
from tests.thorough import like_cases

ALL = commands()
EVERY = pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "attn")
MOST_LINES, MOST_OPTIONS = 24, 8


def options(words):
    """Return the options of a command, but not -h and --help, by their names without dashes."""
    return {name.lstrip("-"): one for one in own_options(ALL[words]) for name in one.opts}


@EVERY
@like_cases
def test_the_short_help_fits_a_screen_and_has_what_people_use_most_an_example_and_where_more_is(words):
    shown = here(*words, "-h")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 80
    is_group = hasattr(ALL[words], "entries")
    assert lines[0].startswith(f"Usage: {named(words)} ")
    assert lines[-1] == f"--help has all options{' and commands' * is_group}."
    assert ("More commands: " in shown.out) == (not words) and "[default" not in shown.out
    assert "Most options have a variable" not in shown.out
    about = " ".join(ALL[words].help.partition("\n\n")[0].split())
    assert about in " ".join(lines)
    assert any(line.startswith(("Example:", "Start with:")) for line in lines)
    known = options(words)
    usual = [] if is_group else USUAL.get(named(words), " ".join(known)).split()
    assert all(f"--{name}" in shown.out or f"-{name}" in shown.out for name in usual)
    listed = [line for line in lines if line.startswith("  -")]
    assert len(listed) == len({id(known[name]) for name in usual}) <= MOST_OPTIONS
    assert all(one in [known[name] for name in usual] for one in known.values() if one.required)


def test_options_have_groups_and_what_people_use_most_is_there_and_no_more_than_eight():
    """Give an option that fails here a group where it is declared: group=..., or rich_help_panel=..., of GROUPS."""
    declared = [one for command in ALL.values() for one in command.params if one.param_type_name == "option"]
    assert {one.rich_help_panel for one in declared} <= {*GROUPS}
    known = {named(words): options(words) if words else COMMANDS for words in ALL}
    for name, listed in USUAL.items():
        usual = listed.split()
        assert set(usual) <= set(known[name]), name
        assert len(set(usual)) == len(usual) <= MOST_OPTIONS


@EVERY
@pytest.mark.parametrize("option", ["-h", "--help"])
@like_cases
def test_help_fits_its_width_and_breaks_no_word(words, option):
    wide = here(*words, option, env={"COLUMNS": "100"}).out
    for columns in (20, 40, 60, 80):
        shown = here(*words, option, env={"COLUMNS": str(columns)}).out
        assert shown.split() == wide.split()
        for line in shown.splitlines():
            assert len(line) <= columns or " " not in line.strip(), line
            assert line == line.rstrip()


def test_the_width_is_that_of_the_option_then_of_its_variable_then_of_columns_then_of_the_terminal():
    def width(*args, **env):
        return max(map(len, here("self", *args, env=env).out.splitlines()))

    for option in ("-h", "--help"):
        assert 55 < width(option, "--width", "60", COLUMNS="90", ATTN_WIDTH="70") <= 60
        assert 55 < width("--width=60", option, COLUMNS="90") <= 60
        assert 65 < width(option, ATTN_WIDTH="70", COLUMNS="90") <= 70
        assert 45 < width(option, COLUMNS="50") <= 50
        assert 75 < width(option) <= 80
        assert 98 < width(option, COLUMNS="200") <= 100 < width(option, "--width", "120")
    shown = terminal("self", "--help", columns=50).out.splitlines()
    assert 45 < max(map(len, shown)) <= 50


def test_what_is_typed_stands_beside_its_text_or_above_it_and_choices_are_named_where_they_have_room():
    rows = [Row("-a", "one two three"), Row(f"--{'x' * 28}", "long"), Row(f"--{'y' * 29}", "below")]
    a, x, y = ("  " + row.typed for row in rows)
    assert [*_table(rows, 80)] == [f"{a:34}one two three", f"{x}  long", y, f"{'':34}below"]
    above = [x, "      long", y, "      below"]
    assert [*_table(rows, 26)] == ["  -a  one two three", *above]
    assert [*_table(rows, 25)] == [a, "      one two three", *above]
    for last, shown in ((11, f"--abc <{'x' * 10}|{'y' * 11}>"), (12, "--abc ABC")):
        assert _choice_row("--abc", "Text.", ["x" * 10, "y" * last], 8).typed == shown
    many = [f"choice{n}" for n in range(10)]
    assert _choice_row("--abc", "T.  [x]", many[:9], 8).text == f"T. One of {', '.join(many[:9])}.  [x]"
    assert _choice_row("--abc", "T.", many, 8).text == f"T. One of {', '.join(many[:8])} and 2 more."


def test_help_and_errors_have_no_colour_and_help_asks_nothing_of_the_other_arguments_or_of_a_file(at):
    forced = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}
    for args in (["-h"], ["self", "-h"], ["self", "--help"], ["vectors", "import", "-h"], ["self", ""]):
        assert "\x1b" not in terminal(*args, env=forced).out
    for args in typed("self --mask casual -h | self -h a b c | vectors import -h"):
        assert here(*args).code == 0
    short, full = (here("self", option).out for option in ("-h", "--help"))
    for args in (["-h", "--help"], ["--width", "many", "-h"]):
        assert here("self", *args).out == short
    (at / "attn.toml").write_text("temperature = 7.0\n[broken")
    assert (here("self", "-h").out, here("self", "--help").out) == (short, full)


@pytest.mark.parametrize("args", [[], ["self"], ["explain"], ["show"], ["compare"], ["vectors"], ["learn"]])
def test_a_command_that_lacks_something_shows_its_short_help_and_the_error_below(args):
    shown = terminal(*args)
    assert shown.code == 2
    assert here(*args, "-h").out.strip() in shown.out
    after = shown.out.partition("--help has all options")[2]
    assert not args or "\nattn: " in after
