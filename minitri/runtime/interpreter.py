"""Kernels on a CPU: generated functions run by Triton's interpreter, on numpy's or torch's memory.

In: the text of the triton stage. Out: for each kernel a function that runs it. Nothing is copied: the
interpreter gets addresses (`HostPointer`). It checks no access, and could corrupt its own heap. So guard bands
(`Guarded`) lie around the arrays of a call that is checked, and show where a kernel writes outside of an array.

Left out: an access further away than a band is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minitri.base.types import DType
from minitri.runtime.arguments import ArrayView, view
from minitri.runtime.binding import Call
from minitri.triton import artifacts
from minitri.triton.descriptors import Descriptor
from minitri.triton.emit import EmittedKernel
from minitri.triton.language_lock import LANGUAGE
from minitri.triton.source import functions
from minitri.trust.sanitizer import AccessError

Interpreted = Callable[[int, Sequence[ArrayView], Sequence[int], Sequence[float]], None]


def interpreted(text: str, kernels: Sequence[EmittedKernel]) -> dict[str, Interpreted]:
    """name → function of (programs, arrays, sizes, scalars)."""
    artifacts.require_triton()
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    from minitri.triton import rt_interpreter

    namespace = {"tl": _Language(tl), "rt": rt_interpreter.rt, "libdevice": rt_interpreter.libdevice, "range": _range}
    made = functions(text, namespace | {"triton_language": tl})  # which the interpreter looks for
    return {k.name: _quiet(InterpretedFunction(made[k.name]), k.descriptors) for k in kernels}


def _range(*bounds: Any) -> range:
    """`range` for loops of kernels, with bounds that are arrays of one number.

    Triton's interpreter up to 3.8 asks numpy for such a number as an integer, and numpy from 2.4 on refuses.
    """
    return range(*(b if isinstance(b, int) else int(b.handle.data.item()) for b in bounds))


class _Language:
    """`triton.language` with loops of ours."""

    def __init__(self, language: Any) -> None:
        self._language = language

    def range(self, *bounds: Any, **_hints: Any) -> range:
        return _range(*bounds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._language, name)


def _quiet(function: Any, descriptors: Sequence[Descriptor]) -> Interpreted:
    """Overflow and nan are results here, not warnings."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    def run(programs: int, arrays: Sequence[ArrayView], numbers: Sequence[int], floats: Sequence[float]) -> None:
        pointers = [HostPointer(a) for a in arrays]
        described = [
            TensorDescriptor(pointers[d.pointer], list(d.shape), list(d.strides), list(d.block)) for d in descriptors
        ]
        with np.errstate(all="ignore"), LANGUAGE.interpreted():
            function[(programs,)](*pointers, *numbers, *floats, *described)

    return run


class _Name(str):
    """The name of a dtype, which can be asked for its bytes."""

    itemsize: int


class HostPointer:
    """The attributes that the interpreter needs of an argument: an address and a dtype.

    It uses torch's names for them. With these names numpy arrays with any strides run, and torch is not imported. The
    "storage" is the memory itself, so nothing is copied.
    """

    def __init__(self, array: ArrayView) -> None:
        self.array = array
        self.dtype = _Name(f"torch.{array.dtype.numpy.name}")
        self.dtype.itemsize = array.dtype.bytes

    def data_ptr(self) -> int:
        return self.array.address

    def _itself(self, *_: Any) -> HostPointer:
        return self

    untyped_storage = cpu = set_ = copy_ = _itself

    def new_empty(self, *size: int, device: str = "cpu") -> HostPointer:
        return HostPointer(self.array)

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return self.array.strides


# ---- guard bands ---------------------------------------------------------------------------------


BAND = 1 << 16  # bytes before and after each array; a multiple of every alignment
POISON = 0xA5
LARGEST = 1 << 26  # bytes of an input that are copied


@dataclass
class Guarded:
    """The arrays of a call between guard bands, filled with poison.

    Inputs are copied, strides and all; outputs and temporaries are full of poison. An element that no kernel writes is
    poison in the result.
    """

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
        """AccessError where a band or an input is not what it was."""
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
