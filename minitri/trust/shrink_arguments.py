"""Makes the arguments of a failing call smaller, as long as the program still fails in the same way.

    x: f32[130, 33], floats      →      x: f32[1, 17], zeros

The function `smallest` takes the arguments of a call, the symbolic shapes of its arrays, the sizes, and a function
`fails`. `fails(other)` is true if the program fails in the same way for the arguments `other`. `smallest` returns
smaller arguments that fail in the same way.

The search first tries smaller sizes: 0, 1, 2, sizes next to block sizes, half the present size, and the present size
minus one. When the sizes cannot become smaller, each array is replaced by a simpler array: zeros, ones, or small
integers in a row-major layout. In an array with few elements, the search also tries simpler numbers for single
elements.

The one idea: each smaller array is cut out of an array for which the program failed. A property of all elements of an
array, such as "no element is NaN", is true for each part of the array too. If smaller arguments still fail, the search
continues from these smaller arguments. The package minitri/testing shrinks programs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitri.graph.ir import Shape

Arguments = dict[str, Any]
Fails = Callable[[Arguments], bool]

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025)
FEW = 16  # elements that are tried one by one


def smallest(
    arguments: Mapping[str, Any], shapes: Mapping[str, Shape], sizes: Mapping[str, int], fails: Fails, tries: int = 150
) -> Arguments:
    """Searches for smaller arguments for which `fails` is still true, with at most `tries` trials.

    `fails(arguments)` must be true for the given arguments.
    """
    search = _Search(dict(arguments), shapes, sizes, fails, tries)
    while search.shrink_sizes():
        pass
    for name, value in search.arguments.items():
        if isinstance(value, np.ndarray):
            search.shrink_values(name)
    return search.arguments


@dataclass
class _Search:
    arguments: Arguments
    shapes: Mapping[str, Shape]
    sizes: Mapping[str, int]
    fails: Fails
    tries: int

    def accepts(self, arguments: Arguments) -> bool:
        """Checks whether `arguments` and the original arguments make the program fail in the same way.

        If the program fails in the same way, the search for smaller arguments continues from `arguments`.
        """
        self.tries -= 1
        if self.tries < 0 or not self.fails(arguments):
            return False
        self.arguments = arguments
        return True

    # ---- sizes -----------------------------------------------------------------------

    def shrink_sizes(self) -> bool:
        """Tries smaller sizes for each dimension, and returns whether any dimension became smaller."""
        before = self.sizes
        for name, n in before.items():
            for smaller in sorted(s for s in {*SIZES, n // 2, n - 1} if 0 <= s < n):
                sizes = {**self.sizes, name: smaller}
                cut = self.cut(sizes)
                if cut is not None and self.accepts(cut):
                    self.sizes = sizes
                    break
        return self.sizes != before

    def cut(self, sizes: Mapping[str, int]) -> Arguments | None:
        """Returns the arguments with their arrays cut to the given sizes, or None if an array would have to grow."""
        made = dict(self.arguments)
        for name, shape in self.shapes.items():
            array = made[name]
            extents = [e.evaluate(sizes) for e in shape]
            if any(not 0 <= e <= n for e, n in zip(extents, array.shape)):
                return None
            made[name] = array[tuple(slice(0, e) for e in extents)]
        return made

    # ---- values ----------------------------------------------------------------------

    def shrink_values(self, name: str) -> None:
        array = self.arguments[name]
        if not array.flags.c_contiguous:
            self.accepts({**self.arguments, name: np.ascontiguousarray(array).reshape(array.shape)})
        if any(self.accepts({**self.arguments, name: simple}) for simple in _simpler(self.arguments[name])):
            return
        for place in np.ndindex(array.shape) if array.size <= FEW else ():
            for value in (0, 1):
                other = np.array(self.arguments[name])
                other[place] = value
                if self.arguments[name][place] == value or self.accepts({**self.arguments, name: other}):
                    break


def _simpler(array: Any) -> Iterator[Any]:
    """Yields arrays of the same shape and dtype with simpler elements, the simplest array first."""
    yield np.zeros_like(array, order="C", subok=False)
    yield np.ones_like(array, order="C", subok=False)
    if array.dtype.kind == "b" or not array.size:
        return
    yield (np.arange(array.size).reshape(array.shape) % 4).astype(array.dtype)
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        whole = np.where(np.isfinite(wide), np.clip(np.rint(wide), -9, 9), wide)
        if array.dtype.kind not in "iu" or (whole == wide).all():
            yield whole.astype(array.dtype)
