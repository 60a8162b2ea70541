"""What each command shows of a text when nothing is asked: the one table that commands, help and docs read.

It holds for the bundled vectors, and for no model on disk. A projection, a head of roles, other vectors or --heads that
somebody asks for come first (`settings_of` of settings/validate.py).
"""

from __future__ import annotations

from typing import NamedTuple

ROLES_HEADS = (  # the bundled heads of grammar; "mean" and "all" are of any model
    *("relations", "head", "subject", "object", "oblique", "modifier", "determiner", "possessor"),
    *("coordination", "previous", "next"),
)
LIKENESS = "likeness"  # the projection whose words look for words of like meaning


class Default(NamedTuple):
    """What a command shows, and why."""

    projection: str
    head: str  # the main one of the projection
    why: str
    mask: str = "none"
    next: int = 0  # next words


ROLES = Default("roles", "relations", "heads of grammar: who belongs to whom, in any order of words")
DEFAULTS: dict[str, Default] = {
    "self": ROLES,
    "masked": Default(
        "language", "article", "guessing the next word is why the mask exists: so it is guessed", "causal", 5
    ),
    "cross": Default(LIKENESS, LIKENESS, "words look for words of like meaning, in another text"),
    "explain": ROLES._replace(
        why=f"{ROLES.why}; a pronoun that the head antecedent of roles-deep resolves comes first"
    ),
    "compare": ROLES._replace(why="as in self, so that one option is the only difference"),
    "page": ROLES._replace(why="one layer over word vectors: another sentence can be typed into the page"),
    "live": ROLES._replace(why="as in self: the mask that a key adds is the only difference"),
    "batch": ROLES._replace(why="one layer is quick: thousands of lines a second"),
}
USUAL = DEFAULTS["self"]
MOST_GUESSED = 512  # tokens; masked shows longer texts with roles, which takes a fraction of the time


def usual(field: str) -> str:
    """Return the usual value of a field of the table, and the others.

    >>> usual("mask")
    'none (causal in masked)'
    """
    found = {command: getattr(default, field) for command, default in DEFAULTS.items()}
    value = getattr(USUAL, field)
    others = ", ".join(f"{one} in {command}" for command, one in found.items() if one != value)
    return f"{value} ({others})" if others else str(value)
