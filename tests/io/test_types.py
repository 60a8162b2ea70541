"""The quick named tuples and dataclasses do what those of the standard library do."""

import copy
import dataclasses
import inspect
import pickle
import sys
import typing

import pytest

from attn_cli.core.masks import Mask
from attn_cli.io import types
from attn_cli.settings import Default, Settings

BODY = """
from __future__ import annotations
class Pair(NamedTuple):
    "Two things."
    first: int
    second: NotEvenDefined = 2
    def total(self): return self.first + self.second
class Swap(NamedTuple):
    new: str
    cls: str
@dataclass(frozen=True)
class Record:
    one: int
    more: list[int] = field(default_factory=list)
    last: str = "x"
    def __post_init__(self): self.seen.append(self.one)
"""


def both():
    for module in (typing, types):
        made = dataclasses.dataclass if module is typing else types.dataclass
        given = globals() | {"NamedTuple": module.NamedTuple, "dataclass": made, "field": dataclasses.field}
        given |= {"inspect": inspect, "sys": sys}  # which the lines below use
        exec(BODY, given)
        given["Record"].seen = []
        yield given | {"pair": given["Pair"], "record": given["Record"]}


TOLD = """
repr(pair(1)), pair(1, second=5), pair(second=3, first=1).total(), pair._fields
pair(1)._asdict(), pair(1)._replace(first=4), pair._make([7, 8]), pair._field_defaults
[Swap("a", cls=str(n)) for n in range(30)]
pair(1) == (1, 2), hash(pair(1)), [*pair(3)], pair.__match_args__, pair.__doc__
outcome(pair), outcome(lambda: pair(1, 2, 3)), outcome(lambda: pair(third=1))
outcome(lambda: setattr(pair(1), "first", 2)), outcome(lambda: pair(1)._replace(third=2))
repr(record(1)), record(1) == record(1), record(1) == record(2), record.seen
record(1, [2], last="y").more, record(1).more is record(1).more
[*vars(record(1))], [*vars(record(last="y", one=1))]
[(p.name, p.annotation, p.default in (p.empty, "x")) for p in inspect.signature(record).parameters.values()]
pair(1).__replace__(first=4) if sys.version_info >= (3, 13) else None
outcome(lambda: hash(record(1))), dataclasses.asdict(dataclasses.replace(record(1), last="z"))
outcome(record), outcome(lambda: record(1, one=2)), outcome(lambda: record(1, no=2))
outcome(lambda: record(1, [], "x", 4)), outcome(lambda: setattr(record(1), "one", 2))
outcome(lambda: delattr(record(1), "one"))
"""


def outcome(call):
    try:
        return call()
    except (TypeError, ValueError, AttributeError) as error:
        return TypeError if type(error) is ValueError else type(error)


@pytest.mark.parametrize("line", TOLD.strip().splitlines())
def test_they_behave_as_those_of_the_standard_library(line):
    known, quick = (eval(line, made) for made in both())
    assert quick == known


def test_they_travel_between_processes():
    for one in (Settings(top=3), Default("p", "h", "w", next=2), Mask("causal", 3, 3)):
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
