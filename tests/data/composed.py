"""Functions and constants that `tests/test_composition.py` uses from another module."""

import minitri as mt

SCALE = 3.0


@mt.jit
def scaled(x):
    return x * SCALE


@mt.jit
def product(x, y):
    return x @ y


def plain(x):
    return x
