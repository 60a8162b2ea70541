"""Records whose arrays are their own and read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_cli.io.array_types import Array


class Frozen:
    """A dataclass that owns its arrays, and those of the named tuples in it: nobody can write to them."""

    def __post_init__(self) -> None:
        for name in self.__annotations__:
            value = getattr(self, name)
            owned = (
                value if name == "source" else _owned(value)
            )  # what computes again is not part of the record
            if owned is not value:
                object.__setattr__(self, name, owned)


def _owned(value: Any) -> Any:
    if hasattr(value, "setflags"):
        return _own(value)
    if hasattr(value, "_fields") and any(hasattr(part, "setflags") for part in value):
        return type(value)(*map(_owned, value))
    return value


def _own(array: Array) -> Array:
    if array.flags.writeable or array.base is not None:
        array = array.copy()
    array.setflags(write=False)
    return array
