"""Reads arrays of any library, and allocates outputs with the library of the arguments.

The function `view` takes one argument of a call: a numpy array, a torch tensor, an object with DLPack, or a Python
number. The returned `ArrayView` says where the elements are in memory. The function `empty` allocates an output with
the library of the arguments, on the same device.

The function `view` rarely copies an array. A CPU array is copied if its byte order is not the machine's, or if its
elements are not aligned in memory. A CPU array is also copied if a stride in bytes is no multiple of the size of an
element. A torch tensor is also copied if the numbers in memory are the negatives of its elements (`is_neg`).
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.types import BY_NUMPY_NAME, DType


class ArrayView(NamedTuple):
    """An array of any library: its dtype, shape, strides in elements, address and device.

    The field `owner` is an object that keeps the array's memory alive, such as the caller's array. `library` names the
    module whose function `from_dlpack` makes the results of a call. If minitri read the array without the DLPack
    protocol, `library` is empty.
    """

    owner: Any
    kind: str  # "numpy" "torch"
    device: str  # "cpu" "cuda:0"
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    library: str = ""

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def returned(self) -> Any:
        """Returns the array as an object of the caller's library."""
        return sys.modules[self.library].from_dlpack(self.owner) if self.library else self.owner

    @property
    def last_offset(self) -> int:
        """The largest distance in memory between the first element and another element, as a number of elements."""
        return sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides) if n > 1)

    def numpy(self) -> Any:
        """Returns the elements as a numpy array. Elements on a GPU are copied to the CPU."""
        if self.kind == "numpy":
            return self.owner
        tensor = self.owner.detach().cpu()
        if self.dtype.name == "bf16":
            return tensor.view(sys.modules["torch"].int16).numpy().view(self.dtype.numpy)
        return tensor.numpy()


def returned(views: Iterable[ArrayView]) -> Any:
    """Returns the results of a call in the form that the caller gets: one array, or a tuple of arrays."""
    results = tuple(v.returned() for v in views)
    return results[0] if len(results) == 1 else results


def view(value: Any, name: str) -> ArrayView:
    """Returns the `ArrayView` of one argument.

    Raises CompileError MT0303 for an unknown dtype, and MT0305 for an object that is not a readable array.
    """
    # If there is a masked array, numpy.ma is loaded already. Importing numpy.ma here would take 20 ms.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise _refused(name, "is a masked array", "pass x.filled(…) or x.data")
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return _numpy_view(np.asarray(value), name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(value, name)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _cuda_view(value, name)
    if isinstance(value, (list, tuple)):
        raise _refused(name, f"is a {type(value).__name__}", "pass numpy.asarray(…)")
    raise _refused(name, f"is no array but of type {type(value).__name__}")


def _refused(name: str, why: str, help: str = "", code: str = "MT0305") -> CompileError:
    return CompileError(code, f"argument `{name}` {why}", help=help)


def _numpy_view(array: Any, name: str) -> ArrayView:
    dtype = BY_NUMPY_NAME.get(array.dtype.name)
    if dtype is None:
        help = "arrays of floats, integers and booleans are understood"
        raise _refused(name, f"has the dtype {array.dtype}", help, "MT0303")
    item = array.dtype.itemsize
    if not array.dtype.isnative or any(s % item for s in array.strides) or not array.flags.aligned:
        array = np.ascontiguousarray(array, dtype.numpy)
    strides = tuple(s // item for s in array.strides)
    return ArrayView(array, "numpy", "cpu", dtype, array.shape, strides, array.ctypes.data)


def _torch_view(tensor: Any, name: str) -> ArrayView:
    dtype = BY_NUMPY_NAME.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise _refused(name, f"has the dtype {tensor.dtype}", code="MT0303")
    torch = sys.modules["torch"]
    if tensor.device.type not in ("cpu", "cuda"):
        raise _refused(name, f"is on {tensor.device}", "CPU and CUDA tensors run")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise _refused(name, "is a sparse, packed or nested tensor", "pass a dense one: x.to_dense()")
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    shape, strides = tuple(tensor.shape), tensor.stride()
    return ArrayView(tensor, "torch", str(tensor.device), dtype, shape, strides, tensor.data_ptr())


def _dlpack_view(value: Any, name: str) -> ArrayView:
    """Returns a view of the array `value`, whose class supports the DLPack protocol."""
    try:
        if value.__dlpack_device__()[0] == 1:
            with suppress(BufferError, RuntimeError):
                return _numpy_view(np.from_dlpack(value), name)
        import torch

        return _torch_view(torch.from_dlpack(value), name)  # CUDA memory or bf16, which numpy does not support
    except CompileError:
        raise
    except Exception as error:  # the other library may raise any exception
        why = f"cannot be read through DLPack ({type(error).__name__})"
        raise _refused(name, why, "pass a numpy array or a torch tensor") from None


def _cuda_view(value: Any, name: str) -> ArrayView:
    """Returns a view of a GPU array with `__cuda_array_interface__`, such as a numba array."""
    try:
        import torch

        about = dict(value.__cuda_array_interface__)
        readable = about | {"data": (about["data"][0], False)}  # torch refuses read-only memory
        kept = SimpleNamespace(__cuda_array_interface__=readable, owner=value)
        tensor = torch.as_tensor(kept, device=_gpu_of(about, torch))
        if written := about.get("stream"):  # kernels on this stream may still write the array
            on = torch.cuda.ExternalStream(written, device=tensor.device)
            torch.cuda.current_stream(tensor.device).wait_stream(on)
    except Exception as error:  # the attribute of an unknown object may have any contents
        why = f"cannot be read through __cuda_array_interface__ ({type(error).__name__})"
        raise _refused(name, why, "pass a CUDA tensor, or an object with __dlpack__") from None
    return _torch_view(tensor, name)  # a call with a numba array returns torch tensors


def _gpu_of(about: dict[str, Any], torch: Any) -> str:
    """Returns the GPU that holds an array."""
    address, gpus = about["data"][0], torch.cuda.device_count()
    one = about | {"data": (address, False), "shape": (1,), "strides": None}
    first = SimpleNamespace(__cuda_array_interface__=one)
    # `torch.as_tensor` copies an array of another GPU, so the address differs
    own = (f"cuda:{k}" for k in range(gpus) if torch.as_tensor(first, device=f"cuda:{k}").data_ptr() == address)
    return next(own, "cuda") if gpus > 1 and address else "cuda"


def laid(array: ArrayView, strides: tuple[int, ...], name: str) -> ArrayView:
    """Returns the array itself if it has the given strides, in elements; otherwise returns a copy with the given
    strides.

    Raises CompileError MT0304 if no copy of the array can have the given strides.
    """
    if 0 in array.shape or all(n == 1 or s == t for n, s, t in zip(array.shape, array.strides, strides)):
        return array
    if any(s <= 0 for n, s in zip(array.shape, strides) if n > 1 or array.kind == "torch"):
        raise _refused(name, f"has the strides {list(array.strides)}, and must have {list(strides)}", code="MT0304")
    made = empty(array, array.dtype, array.shape, strides)
    made.owner[...] = array.owner
    return made


def strided(shape: Sequence[int], strides: Sequence[int], dtype: Any, allocate: Callable[[int, Any], Any]) -> Any:
    """Returns a new numpy array with the given strides, which are counted in elements.

    `allocate(count, dtype)` allocates memory for `count` elements.
    """
    steps = [(n - 1) * s for n, s in zip(shape, strides)]
    first = -sum(s for s in steps if s < 0)
    memory = allocate(first + sum(s for s in steps if s > 0) + 1, dtype)[first:]
    return np.lib.stride_tricks.as_strided(memory, shape, [s * dtype.itemsize for s in strides])


def as_tensor(array: Any) -> Any:
    """Returns the numpy array as a torch tensor with the same memory.

    torch does not know the bf16 of the package ml_dtypes. An array of bf16 is passed to torch as 16-bit integers, and
    torch interprets the bits of the integers as torch's bf16.
    """
    import torch

    is_bf16 = array.dtype.name == "bfloat16"
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(array)


Numbers = tuple[int, ...]


def empty(like: ArrayView | None, dtype: DType, shape: Numbers, strides: Numbers) -> ArrayView:
    """Returns a new array of the same library and device as the array `like`.

    If `like` is None, the new array is a numpy array.
    """
    if like is None or like.kind == "numpy":
        made = strided(shape, strides, dtype.numpy, np.empty)
        return _numpy_view(made, "out")._replace(library=like.library if like else "")
    torch = sys.modules["torch"]
    made = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype.numpy.name), device=like.owner.device)
    return _torch_view(made, "out")._replace(library=like.library)
