"""The bar of long work on a terminal, and the time that is left where it is very long."""

import io
import sys

import pytest

from attn_cli.io import progress


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("whole", "said"), [(10, " 25 %"), (400, " 25 %, 5:00 left"), (8000, "1:40:00 left")]
)
def test_the_bar_of_long_work_tells_the_time_that_is_left(whole, said, monkeypatch):
    now, screen = [0.0], Screen()
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.Progress("Work") as report:
        report(0)
        now[0] = whole / 4
        report(0.25)
        shown = screen.getvalue()
    assert said in shown
    assert ("left" in shown) == (whole > 20)
    assert screen.getvalue().endswith("\r"), "the bar goes"
