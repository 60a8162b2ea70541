"""The run as on an older processor: what it asks of OpenBLAS and NumPy is in use, in every process of the tests."""

import os
import re

from tests.older_processor import CORE, LOOPS, OLDER, InUse, in_use, in_use_with, older
from tests.shell import surroundings


def test_what_is_asked_for_takes_effect_here_and_in_what_the_tests_start():
    named = ["SSSE3", "AVX2", "AVX512F", "AVX512_SKX", "X86_V3", "X86_V4"]  # by NumPy 2.3, and since
    assert older(InUse(["SkylakeX"], named)) == {CORE: OLDER, LOOPS: "AVX512F,AVX512_SKX,X86_V4"}
    assert older(InUse(["neoversen1"], ["ASIMDHP", "SVE"])) == older(InUse(["Haswell"], ["AVX2"])) == {}
    then = in_use_with(surroundings() | (made := older(in_use())))
    assert not older(then) and (not made or then.kernels in ([], [OLDER]))
    for found in (in_use(), in_use_with(surroundings())):
        assert not {*re.findall(r"\w+", os.environ.get(LOOPS, ""))} & {*found.loops}
        if os.environ.get(CORE) == OLDER:
            assert {*found.kernels} <= {OLDER}
