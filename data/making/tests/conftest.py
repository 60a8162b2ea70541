"""Fixtures that the tests of the program have too."""

from tests.conftest import at, kept, own  # noqa: F401
