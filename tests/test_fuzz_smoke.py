"""The campaigns of tests/fuzz, in small: that they run, and that nothing they find so quickly is new."""

import signal
import sys

import pytest

from tests.fuzz import kill
from tests.fuzz.campaign import NAMES, apart
from tests.thorough import like_cases, takes_long

CASES = 3000
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and forks")


@pytest.mark.parametrize("name", NAMES)
@like_cases
def test_damaged_files_end_in_a_sentence_and_never_in_a_wrong_vector(name):
    outcome = apart(name, CASES // len(NAMES) + 1, 7)
    assert not outcome.crashed, "\n".join(first for _, first in outcome.crashes.values())
    assert 0 < outcome.opened < outcome.cases


@takes_long
def test_a_killed_import_leaves_a_sound_index_or_none():
    with kill.stage(4 * kill.LINES // 5) as on:
        told = [*kill.killed(on, 6, signal.SIGKILL, seed=3, taken=0.4)]
    assert [lost for _, lost in told] == [[]] * 6
