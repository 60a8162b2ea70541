"""Names for array types."""

from typing import Any, TypeVar

import numpy as np

Scalar = TypeVar("Scalar", bound=np.generic)
NDArray = np.ndarray[Any, np.dtype[Scalar]]  # as numpy.typing has it, whose import takes half a millisecond
Array = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
Arrays = dict[str, NDArray[Any]]
