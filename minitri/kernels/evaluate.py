"""The numpy evaluator of kernels, which defines them: index notation over all axes at once.

In: a plan, an array for each input, the sizes. Out: a tuple of arrays. The one idea: an axis is
all of its indices at once, so a kernel is its ops in order. What each op is: kernels/numpy_ops.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minitri.kernels.ir import Count, Kernel, Load, Plan, Store
from minitri.kernels.numpy_ops import Memory, Values, allocate, result


def evaluate(plan: Plan, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """The outputs as numpy arrays; temporaries and outputs start as garbage, not zeros."""
    memory = allocate(plan, inputs, sizes)
    for kernel in plan.kernels:
        run = _Run(kernel, memory, sizes)
        for op in kernel.body:
            run.run(op)
    return tuple(result(memory[b.name], b, sizes) for b in plan.outputs)


class _Run(Values):
    def __init__(self, kernel: Kernel, memory: Mapping[str, Memory], sizes: Mapping[str, int]) -> None:
        super().__init__([a.name for a in kernel.axes], memory, sizes)
        for a in kernel.axes:
            self.env[a.symbol] = self.along(a.name, np.arange(a.extent.evaluate(sizes)))

    def load(self, op: Load) -> Any:
        inside = self.holds(op.guards, op)
        return self.read(op, self.offset(op, [self.position(d, op) for d in op.index]), inside)

    def store(self, op: Store) -> None:
        offset = self.offset(op, [self.position(d, op) for d in op.index])
        value = self.values[op.value]
        shape = np.broadcast_shapes(value.shape, offset.shape)
        self.memory[op.buffer.name].flat[np.broadcast_to(offset, shape)] = np.broadcast_to(value, shape)

    def count(self, op: Count) -> Any:
        return np.prod([self.width(a) for a in op.over], dtype=np.int64)
