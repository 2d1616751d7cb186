"""Guard bands around arrays, filled with poison: they show where a kernel writes outside of an array.

In: a call on the CPU, and requests for memory while its kernels run. Out: the same call with its
inputs copied between guard bands (strides and all), outputs and temporaries between guard bands
and full of poison. `verify` raises an AccessError where a band or an input is not what it was; an
element that no kernel writes is poison in the result.

Triton's interpreter checks no access: without this it would corrupt its own heap.

Left out: an access further away than a band is wide.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minitri.base.types import DType
from minitri.runtime.arguments import ArrayView, view
from minitri.runtime.binding import Call
from minitri.trust.sanitizer import AccessError

BAND = 1 << 16  # bytes before and after each array; a multiple of every alignment
POISON = 0xA5
LARGEST = 1 << 26  # bytes of an input that are copied


@dataclass
class Guarded:
    poison: int = POISON
    made: list[tuple[str, Any]] = field(default_factory=list)  # (what it is for, all of its bytes)
    inputs: list[tuple[str, Any, Any]] = field(default_factory=list)  # (name, the copy, what it must stay)

    def empty(self, like: ArrayView | None, dtype: DType, shape: tuple[int, ...]) -> ArrayView:
        """Poisoned memory for an output or a temporary; in the place of `runtime.arguments.empty`."""
        count = int(np.prod(shape, dtype=np.int64))
        inside = self._memory("an output", dtype.numpy, count)
        return replace(view(inside.reshape(shape), "out"), library=like.library if like else "")

    def call(self, call: Call) -> Call:
        """The call with guarded copies of its arrays, which lie in memory as they did."""
        return replace(call, arrays={n: self._copied(n, a) for n, a in call.arrays.items()})

    def verify(self) -> None:
        for name, raw in self.made:
            if not ((raw[:BAND] == self.poison).all() and (raw[-BAND:] == self.poison).all()):
                raise AccessError("out of bounds", f"a kernel writes outside of {name}")
        for name, copy, original in self.inputs:
            if copy.tobytes() != original.tobytes():
                raise AccessError("input written", f"a kernel writes to the input {name}")

    def _memory(self, name: str, dtype: Any, count: int) -> Any:
        raw = np.full(2 * BAND + count * dtype.itemsize, self.poison, np.uint8)
        self.made.append((name, raw))
        return raw[BAND : BAND + count * dtype.itemsize].view(dtype)

    def _copied(self, name: str, array: ArrayView) -> ArrayView:
        steps = [(n - 1) * s for n, s in zip(array.shape, array.strides)]
        first, last = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
        if 0 in array.shape or (last - first + 1) * array.dtype.bytes > LARGEST:
            return array
        original = array.numpy()
        inside = self._memory(name, array.dtype.numpy, last - first + 1)
        strides = [s * array.dtype.bytes for s in array.strides]
        copy = np.lib.stride_tricks.as_strided(inside[-first:], array.shape, strides)
        copy[...] = original
        self.inputs.append((name, copy, original))
        return view(copy, name)
