"""Kernels on a CPU: generated functions run by Triton's interpreter, on numpy's or torch's memory.

In: the text of the triton stage. Out: for each kernel a function that runs it. Nothing is copied: the
interpreter gets addresses (`HostPointer`). It checks no access; runtime/guard_bands.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitri.optimize.tensor_descriptors import Descriptor
from minitri.runtime.arguments import ArrayView
from minitri.triton import artifacts
from minitri.triton.emit import EmittedKernel
from minitri.triton.language_lock import LANGUAGE
from minitri.triton.source import functions

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
