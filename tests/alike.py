"""What two computations give, alike to a tolerance: BLAS adds in another order in other shapes, threads and processors.

Bits are compared where they are promised: of the lines of a batch, of a seed, of any number of threads.
"""

import math

FLOAT32 = 5e-5  # what a pretrained model computes agrees so far, where its numbers are of size one


def assert_alike(got: object, wanted: object, within: float = 1e-9) -> None:
    """Assert that floats at any depth are within a tolerance, relative or absolute, and all else is equal."""
    if isinstance(wanted, dict):
        assert isinstance(got, dict) and list(got) == list(wanted)
        for key in wanted:
            assert_alike(got[key], wanted[key], within)
    elif isinstance(wanted, list | tuple):
        assert isinstance(got, list | tuple) and len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_alike(one, other, within)
    elif isinstance(wanted, float):
        assert isinstance(got, float), got
        assert math.isclose(got, wanted, rel_tol=within, abs_tol=within), f"{got} is not near {wanted}"
    else:
        assert got == wanted
