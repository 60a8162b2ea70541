"""The run as on an older processor: what it asks of OpenBLAS and NumPy is in use, in every process of the tests."""

import os
import platform
import re

import pytest

from tests.older_processor import ABOVE_AVX2, CORE, LOOPS, OLDER, InUse, in_use, in_use_with, older
from tests.shell import surroundings

NEWER = InUse(["SkylakeX"], ["SSSE3", "AVX", "AVX2", "AVX512F", "AVX512_SKX"])  # as NumPy 2.3 names them


@pytest.mark.parametrize(
    ("environ", "now", "machine", "said"),
    [
        ({CORE: "Zen"}, NEWER, "x86_64", "is Zen, and is left as it is"),
        ({}, InUse([], ["ASIMDHP", "SVE"]), "arm64", "No OpenBLAS for x86"),
        ({}, InUse(["neoversen1"], ["ASIMDHP", "SVE"]), "aarch64", "NumPy has no loops above AVX2"),
        ({}, InUse(["Sandybridge"], ["SSE42", "AVX"]), "x86_64", "older than Haswell"),
        ({}, InUse(["Haswell"], []), "x86_64", "NumPy has no loops above AVX2"),
    ],
)
def test_what_cannot_be_changed_is_left_and_said(environ, now, machine, said):
    made, told = older(environ, now, machine)
    assert CORE not in made and said in " ".join(told)
    assert (LOOPS in made) == (now is NEWER)


def test_what_is_asked_for_takes_effect_here_and_in_what_the_tests_start():
    made, _ = older(surroundings({CORE: None}), in_use(), platform.machine())
    then = in_use_with({**surroundings(), **made})
    assert not any(map(ABOVE_AVX2.fullmatch, then.loops))
    assert CORE not in made or then.kernels == [OLDER]
    for found in (in_use(), in_use_with(surroundings())):
        assert not {*re.findall(r"\w+", os.environ.get(LOOPS, ""))} & {*found.loops}
        if os.environ.get(CORE) == OLDER and platform.machine() == "x86_64":
            assert {*found.kernels} <= {OLDER}
