"""A call on a GPU made again: everything that the first one worked out is kept.

In: an executable and a checked call. Out: a `Replay`, which takes new tensors of the same
dtypes, shapes, strides and device, allocates and launches, and does nothing else. `call_key`
says which calls are such.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minitri.runtime.binding import Call
from minitri.runtime.launch import Executable, Step
from minitri.types import DType, bool_


def call_key(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """What must be the same for two calls to launch the same; None if a call is not worth it.

    Floats are left out (they are passed at run time, or the program has none to take).
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    key: list[Any] = []
    on_gpu = False
    for a in args:
        if isinstance(a, torch.Tensor):
            if not a.is_cuda or a.is_nested:
                return None
            on_gpu = True
            key.append((a.dtype, a.shape, a.stride(), a.device, a.is_neg(), a.is_sparse))
        elif isinstance(a, (bool, int)):
            key.append((type(a), a))
        elif isinstance(a, float):
            key.append(float)
        else:
            return None
    return tuple(key) if on_gpu else None


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel: `slots` say which of the call's tensors its pointers are."""

    run: Callable[..., None]
    grid: tuple[int, ...]
    slots: tuple[int, ...]
    numbers: tuple[int, ...]
    scalars: tuple[str, ...]
    options: Mapping[str, Any]


class Replay:
    """Called with the tensors in the order of `names`, and the scalars by name."""

    def __init__(self, executable: Executable, call: Call) -> None:
        import torch

        plan, model = executable.plan, call.model
        assert model is not None and not executable.interpreted
        self.names = tuple(call.arrays)
        self.device = model.owner.device
        self.current = torch.cuda.current_device
        self.switch = torch.cuda.device
        made = (*plan.temporaries, *plan.outputs)
        self.made = tuple((tuple(e.evaluate(call.sizes) for e in b.shape), _torch_dtype(b.dtype)) for b in made)
        self.outputs = slice(len(self.names) + len(plan.temporaries), None)
        self.empty = torch.empty
        slots = {name: k for k, name in enumerate((*self.names, *(b.name for b in made)))}
        self.launches = tuple(launch for s in executable.steps if (launch := _launch(s, slots, call.numbers)))

    def __call__(self, tensors: Sequence[Any], scalars: Mapping[str, float]) -> list[Any]:
        if self.current() != self.device.index:
            with self.switch(self.device):
                return self._run(tensors, scalars)
        return self._run(tensors, scalars)

    def _run(self, tensors: Sequence[Any], scalars: Mapping[str, float]) -> list[Any]:
        memory = list(tensors)
        for shape, dtype in self.made:
            memory.append(self.empty(shape, dtype=dtype, device=self.device))
        for launch in self.launches:
            pointers = [memory[k] for k in launch.slots]
            launch.run(launch.grid, *pointers, *launch.numbers, *[scalars[n] for n in launch.scalars], **launch.options)
        return memory[self.outputs]


def _launch(step: Step, slots: Mapping[str, int], sizes: Mapping[str, int]) -> Launch | None:
    kernel = step.kernel
    tiles = kernel.tiles.evaluate(sizes)
    if tiles == 0:
        return None
    return Launch(
        step.launch, (tiles,), tuple(slots[b.name] for b in kernel.pointers),
        tuple(d.evaluate(sizes) for d in kernel.sizes), tuple(b.name for b in kernel.scalars), step.options,
    )  # fmt: skip


def _torch_dtype(dtype: DType) -> Any:
    return getattr(sys.modules["torch"], "bool" if dtype == bool_ else dtype.triton)
