"""Tables of cases as text: pieces, or command lines as they are typed, apart by | or on lines of their own."""

import re
import shlex


def apart(text: str) -> list[str]:
    return [piece.strip() for piece in re.split(r"\n| \| ", text.strip())]


def typed(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in apart(text)]


def told(text: str) -> list[tuple[list[str], str]]:
    """Return the words of each command line, and what stands behind its =>."""
    cases = [line.partition("=>") for line in apart(text)]
    return [(shlex.split(line), said.strip()) for line, _, said in cases]


def pairs(text: str) -> dict[str, str]:
    """Return what stands before each =>, and behind it."""
    return {
        before.strip(): after.strip() for before, _, after in (line.partition("=>") for line in apart(text))
    }
