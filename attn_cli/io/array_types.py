"""Names for array types, imported by type checkers only."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
Arrays = dict[str, NDArray[Any]]
