"""Types that many modules name: arrays, what long work reports, `NamedTuple`, `dataclass` and its `replace`.

The names of arrays are for annotations alone, so that this needs no NumPy.

The standard library's classes compile code for each class as it is declared, 0.1 and 0.5 ms: a tenth of the time of
`attn self`. Here a tuple's constructor is compiled when many of its instances are made, and frozen dataclasses share
their methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass, replace as replace
    from typing import Any, NamedTuple as NamedTuple, TypeVar

    import numpy as np

    Scalar = TypeVar("Scalar", bound=np.generic)
    NDArray = np.ndarray[Any, np.dtype[Scalar]]
    Array = NDArray[np.floating[Any]]
    Bools = NDArray[np.bool_]
    Ints = NDArray[np.intp]
    Arrays = dict[str, NDArray[Any]]
else:
    import collections
    import dataclasses

    Array = Bools = Ints = Arrays = Scalar = object
    NDArray = list  # which [] may follow, as in NDArray[np.float32]

    replace = dataclasses.replace
    FEW, MADE = 20, collections.Counter()  # so many instances of a class are made without compiling

    class _Kind(type):
        def __new__(kind, name, bases, body):
            if bases[0] is not tuple and not hasattr(bases[0], "_fields"):
                fields = body["_fields"] = body["__match_args__"] = tuple(body["__annotations__"])
                body["_field_defaults"] = {name: body[name] for name in fields if name in body}
                body |= {name: collections._tuplegetter(at, name) for at, name in enumerate(fields)}
                body["__slots__"] = ()
            return super().__new__(kind, name, bases, body)

    class NamedTuple(tuple, metaclass=_Kind):
        """A tuple whose items have the names and defaults of the class's annotations, which stay unevaluated."""

        __slots__ = ()

        def __new__(cls, /, *args, **given):  # noqa: D102
            fields = cls._fields
            left = fields[len(args) :]
            if MADE[cls] < FEW and len(args) <= len(fields) and given.keys() <= set(left):
                MADE[cls] += 1
                values = cls._field_defaults | given
                if values.keys() >= set(left):
                    return tuple.__new__(cls, (*args, *map(values.__getitem__, left)))
            names = "".join(f"{name}, " for name in fields)
            # No field's name begins with an underscore, so none hides these two.
            made = eval(f"lambda _cls, {names}: _new(_cls, ({names}))", {"_new": tuple.__new__})
            made.__defaults__ = tuple(cls._field_defaults.values())
            cls.__new__ = staticmethod(made)
            return made(cls, *args, **given)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, /, **changes):
            return type(self)(**{**self._asdict(), **changes})

        __replace__ = _replace  # for copy.replace, of Python 3.13

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return _shown(self, self._asdict())

        def __getnewargs__(self):
            return tuple(self)

    def _shown(one, values):
        return f"{type(one).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def _values(one):
        return {name: getattr(one, name) for name in type(one).__dataclass_fields__}

    def _default(field):
        return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()

    def _init(self, /, *args, **given):
        fields = self.__dataclass_fields__
        placed = dict(zip(fields, args, strict=False))
        values = {name: _default(field) for name, field in fields.items()} | placed | given
        odd = [name for name, value in values.items() if value is dataclasses.MISSING or name not in fields]
        if odd or len(args) > len(fields) or placed.keys() & given.keys():
            odd = ", ".join(sorted(odd)) or "one field twice"
            raise TypeError(f"{type(self).__name__}() lacks, or does not take: {odd}")
        self.__dict__.update(values)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def _equal(self, other):
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def _refuse(self, name, *value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    class _Signature:
        """What `help` and notebooks show of a class's arguments; made when they ask."""

        def __get__(self, one, kind):
            from inspect import Parameter, Signature

            how, made = Parameter.POSITIONAL_OR_KEYWORD, []
            for one in dataclasses.fields(kind):
                value = _default(one)
                default = Parameter.empty if value is dataclasses.MISSING else value
                made.append(Parameter(one.name, how, default=default, annotation=one.type))
            return Signature(made)

    METHODS = {
        "__signature__": _Signature(),
        "__init__": _init,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    SHOWN = {"__repr__": lambda self: _shown(self, _values(self))}
    COMPARED = {"__eq__": _equal, "__hash__": lambda self: hash(tuple(_values(self).values()))}

    def dataclass(*, frozen, eq=True, repr=True):
        """Return what makes a frozen dataclass; dataclasses' own fields, replace and asdict know it."""
        assert frozen

        def made(kind):
            for name, method in (METHODS | (SHOWN if repr else {}) | (COMPARED if eq else {})).items():
                setattr(kind, name, method)
            return dataclasses.dataclass(init=False, eq=False, repr=False)(kind)

        return made


class Stage(NamedTuple):
    """Where work stands: the phase's name, the part of it done (0 to 1), words so far, seconds so far, a note."""

    phase: str
    done: float
    words: int
    seconds: float
    note: str = ""


OnPart = Callable[[float], None]  # gets the part of some work that is done, 0 to 1
StageReport = Callable[[Stage], None]


def no_report(done: float) -> None:
    """Report nothing."""


def part_of(report: OnPart | None, done: int, parts: int) -> OnPart | None:
    """Return a report for one of several equal parts of some work, when `done` of them are complete."""
    return None if report is None else lambda part: report((done + part) / parts)
