"""Runs generated kernels on a CPU with Triton's interpreter. The kernels work directly on the memory of numpy or torch.

The function `interpreted` takes the source text of the triton stage. For each kernel, `interpreted` returns an
`InterpretedKernel`. The method `InterpretedKernel.run` runs the kernel. Arrays are not copied: the interpreter gets the
addresses of the arrays (`HostPointer`). The interpreter does not check accesses, so a wrong store could overwrite the
interpreter's own memory. During `check`, each array lies between two guard bands (`Guarded`). If the bytes of a guard
band have changed, a kernel wrote outside of an array.

If a wrong store hits memory beyond the guard bands, no check finds this store.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minitri.base.types import DType
from minitri.runtime.array_interop import ArrayView, Numbers, strided, view
from minitri.runtime.call_binding import Call
from minitri.triton.descriptors import Descriptor
from minitri.triton.emit import EmittedKernel
from minitri.triton.language_lock import LANGUAGE
from minitri.triton.source import functions
from minitri.trust.sanitizer import AccessError


class InterpretedKernel(NamedTuple):
    """One emitted kernel, and its function in Triton's interpreter."""

    kernel: EmittedKernel
    function: Any

    def run(self, programs: int, _stream: int, arguments: tuple[Any, ...]) -> None:
        """Runs the kernel without numpy's warnings, because overflow and nan are ordinary results of a kernel."""
        with np.errstate(all="ignore"), LANGUAGE.interpreted():
            self.function[(programs,)](*arguments)

    def pointer(self, array: ArrayView) -> HostPointer:
        return HostPointer(array)

    def described(self, d: Descriptor, pointers: Sequence[Any]) -> Any:
        """Makes a tensor descriptor, an argument for a kernel that runs in Triton's interpreter."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(pointers[d.pointer], list(d.shape), list(d.strides), list(d.block))


def interpreted(text: str, kernels: Sequence[EmittedKernel]) -> tuple[InterpretedKernel, ...]:
    """Makes an `InterpretedKernel` for each of `kernels`, from the functions in the source `text`."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    from minitri.triton import rt_interpreter

    namespace = {"tl": _Language(tl), "rt": rt_interpreter.rt, "libdevice": rt_interpreter.libdevice, "range": _range}
    made = functions(text, namespace | {"triton_language": tl})  # the interpreter looks for this name
    return tuple(InterpretedKernel(k, InterpretedFunction(made[k.name])) for k in kernels)


def _range(*bounds: Any, **_hints: Any) -> range:
    """Replaces `range` and `tl.range` in interpreted kernels; bounds can be integers or one-element tensors."""
    # Triton's interpreter (up to Triton 3.8) converts such a tensor by numpy, and numpy 2.4 or later rejects this
    return range(*(b if isinstance(b, int) else int(b.handle.data.item()) for b in bounds))


class _Language:
    """The module `triton.language` with minitri's own `range`."""

    range = staticmethod(_range)

    def __init__(self, language: Any) -> None:
        self._language = language

    def __getattr__(self, name: str) -> Any:
        return getattr(self._language, name)


class _Name(str):
    """The name of a dtype, with the bytes of one element as `itemsize`."""

    # Triton reads the name and the `itemsize` of the dtype of each argument
    itemsize: int


class HostPointer:
    """An array as a kernel argument for the interpreter: an address and a dtype.

    The interpreter expects torch tensors, so this class has some attributes of torch tensors. A `HostPointer` can refer
    to a numpy array with any strides, without importing torch. No array is copied, because the attribute "storage"
    refers to the memory of the array.
    """

    def __init__(self, array: ArrayView) -> None:
        self.array = array
        self.dtype = _Name(f"torch.{array.dtype.numpy.name}")
        self.dtype.itemsize = array.dtype.bytes

    def data_ptr(self) -> int:
        return self.array.address

    def _itself(self, *_: Any, **_device: Any) -> HostPointer:
        return self

    untyped_storage = cpu = set_ = copy_ = new_empty = _itself

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return self.array.strides


# ---- guard bands ---------------------------------------------------------------------------------


BAND = 1 << 16  # bytes before and after each array; a multiple of every alignment
POISON = 0xA5
LARGEST = 1 << 26  # bytes; a larger input is not copied


class Guarded:
    """Copies the arrays of a call, and puts guard bands around the copies, to find wrong writes.

    Guard bands, outputs and temporaries are filled with the byte `POISON`. The copy of an input has the strides of the
    input. An output element that no kernel writes consists of `POISON` bytes in the result.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []  # (description, the array with its bands as bytes)
        self.inputs: list[tuple[str, Any, Any]] = []  # (name, the copy, the caller's array)

    def empty(self, like: ArrayView | None, dtype: DType, shape: Numbers, strides: Numbers) -> ArrayView:
        """Returns memory filled with `POISON` for an output or a temporary.

        The parameters are those of the function `empty` in runtime/array_interop.py.
        """
        made = strided(shape, strides, dtype.numpy, partial(self._memory, "an output"))
        return view(made, "out")._replace(library=like.library if like else "")

    def call(self, call: Call) -> Call:
        """Returns the call with a copy in place of each array. Each copied array has the strides of the original array,
        and lies between two guard bands (bytes that no kernel may write).
        """
        return call._replace(arrays={n: self._copied(n, a) for n, a in call.arrays.items()})

    def verify(self) -> None:
        """Raises AccessError if a kernel changed a guard band or an input."""
        for name, raw in self.made:
            if not ((raw[:BAND] == POISON).all() and (raw[-BAND:] == POISON).all()):
                raise AccessError("out of bounds", f"a kernel writes outside of {name}")
        for name, copy, original in self.inputs:
            if copy.tobytes() != original.tobytes():
                raise AccessError("input written", f"a kernel writes to the input {name}")

    def _memory(self, name: str, count: int, dtype: Any) -> Any:
        raw = np.full(2 * BAND + count * dtype.itemsize, POISON, np.uint8)
        self.made.append((name, raw))
        return raw[BAND : BAND + count * dtype.itemsize].view(dtype)

    def _copied(self, name: str, array: ArrayView) -> ArrayView:
        if 0 in array.shape or (array.last_offset + 1) * array.dtype.bytes > LARGEST:
            return array
        copy = strided(array.shape, array.strides, array.dtype.numpy, partial(self._memory, name))
        copy[...] = original = array.numpy()
        self.inputs.append((name, copy, original))
        return view(copy, name)
