"""The run as on an older processor: what it asks of OpenBLAS and NumPy is in use, in every process of the tests."""

import os
import platform
import re

import pytest

from tests.older_processor import ABOVE_AVX2, CORE, LOOPS, OLDER, InUse, in_use, in_use_with, older
from tests.shell import surroundings

NEWER = InUse(["SkylakeX"], ["SSSE3", "AVX", "AVX2", "AVX512F", "AVX512_SKX"])  # as NumPy 2.3 names them


LEFT = "NumPy has no loops above AVX2"
NEWER_LOOPS = "AVX512F,AVX512_SKX"


@pytest.mark.parametrize(
    ("environ", "now", "machine", "changed", "said"),
    [
        ({}, InUse(["Zen"], ["X86_V3", "X86_V4"]), "AMD64", {CORE: OLDER, LOOPS: "X86_V4"}, ""),
        ({LOOPS: "AVX2"}, NEWER, "x86_64", {CORE: OLDER, LOOPS: f"AVX2,{NEWER_LOOPS}"}, ""),
        ({CORE: "Zen"}, NEWER, "x86_64", {LOOPS: NEWER_LOOPS}, "is Zen, and is left as it is"),
        ({}, InUse([], ["ASIMDHP", "SVE"]), "arm64", {}, "No OpenBLAS for x86"),
        ({}, InUse(["neoversen1"], ["ASIMDHP", "SVE"]), "aarch64", {}, LEFT),
        ({}, InUse(["Sandybridge"], ["SSE42", "AVX"]), "x86_64", {}, "older than Haswell"),
        ({}, InUse(["Haswell"], []), "x86_64", {}, LEFT),
    ],
)
def test_what_cannot_be_changed_is_left_and_said(environ, now, machine, changed, said):
    made, told = older(environ, now, machine)
    assert made == changed and said in " ".join(told)


def test_what_is_asked_for_takes_effect_here_and_in_what_the_tests_start():
    made, _ = older(surroundings({CORE: None}), in_use(), platform.machine())
    then = in_use_with({**surroundings(), **made})
    assert not any(map(ABOVE_AVX2.fullmatch, then.loops))
    assert CORE not in made or then.kernels == [OLDER]
    for found in (in_use(), in_use_with(surroundings())):
        assert not {*re.findall(r"\w+", os.environ.get(LOOPS, ""))} & {*found.loops}
        if os.environ.get(CORE) == OLDER and platform.machine() == "x86_64":
            assert {*found.kernels} <= {OLDER}
