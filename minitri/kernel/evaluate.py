"""The kernels' definition: index notation, evaluated over all axes at once by numpy.

In: a plan, an array for each input, the sizes. Out: a tuple of arrays. A value of type
`f32[i, r]` is an array with one dimension for each axis of the kernel, of size 1 where the
value does not depend on the axis; so broadcasting by name is numpy's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minitri import arrays
from minitri.dims import Dim, Symbol
from minitri.kernel.ir import (
    Buffer,
    Carry,
    Compute,
    Constant,
    Dot,
    Inside,
    Kernel,
    Load,
    Op,
    Plan,
    Position,
    Reduce,
    Scalar,
    Scan,
    Spread,
    Store,
)  # fmt: skip
from minitri.ops import OPERATORS


def evaluate(plan: Plan, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """The outputs as numpy arrays; temporaries and outputs start as garbage, not zeros."""
    memory = allocate(plan, inputs, sizes)
    for kernel in plan.kernels:
        _Run(kernel, memory, sizes).all()
    return tuple(memory[b.name] for b in plan.outputs)


def allocate(plan: Plan, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    memory: dict[str, Any] = {b.name: np.asarray(inputs[b.name], b.dtype.numpy) for b in plan.inputs}
    for b in (*plan.temporaries, *plan.outputs):
        shape = tuple(e.evaluate(sizes) for e in b.shape)
        fill = -77 if b.dtype.kind in "if" else 77
        memory[b.name] = np.full(shape, fill, b.dtype.numpy)
    return memory


class _Run:
    def __init__(self, kernel: Kernel, memory: dict[str, Any], sizes: Mapping[str, int]) -> None:
        self.kernel, self.memory, self.sizes = kernel, memory, sizes
        self.names = [a.name for a in kernel.axes]
        self.extents = {a.name: a.extent.evaluate(sizes) for a in kernel.axes}
        self.env: dict[Symbol, Any] = {Symbol(n): v for n, v in sizes.items()}
        for k, a in enumerate(kernel.axes):
            shape = [-1 if j == k else 1 for j in range(len(self.names))]
            self.env[a.symbol] = np.arange(self.extents[a.name]).reshape(shape)
        self.values: dict[Op, Any] = {}

    def all(self) -> None:
        for op in self.kernel.body:
            value = self.value(op)
            if value is not None:
                rank = len(self.names)
                value = np.asarray(value, op.dtype.numpy)
                self.values[op] = value.reshape([1] * (rank - value.ndim) + list(value.shape))

    def position(self, expr: Dim, op: Op) -> Any:
        picks = {s: self.values[v] for s, v in getattr(op, "picks", ())}
        return arrays.index(expr, {**self.env, **picks})

    def holds(self, conditions: tuple[Dim, ...], op: Op) -> Any:
        inside: Any = np.ones([1] * len(self.names), bool)
        for c in conditions:
            inside = inside & (self.position(c, op) >= 0)
        return inside

    def value(self, op: Op) -> Any:
        match op:
            case Load():
                return self.load(op)
            case Constant():
                return op.value
            case Scalar():
                return self.memory[op.buffer.name]
            case Position():
                return self.position(op.expr, op)
            case Inside():
                return self.holds(op.conditions, op)
            case Compute(op="cast"):
                return arrays.cast(self.values[op.args[0]], op.dtype)
            case Compute():
                with np.errstate(all="ignore"):
                    return OPERATORS[op.op].numpy(*[self.values[a] for a in op.args])
            case Spread():
                return np.broadcast_to(
                    self.values[op.x],
                    [self.extents[n] if n in op.axes else self.values[op.x].shape[k] for k, n in enumerate(self.names)],
                )
            case Reduce():
                places = tuple(self.names.index(a) for a in op.over)
                return np.expand_dims(arrays.reduce(op.op, self.values[op.x], places), places)
            case Scan():
                return arrays.scan(op.op, self.values[op.x], self.names.index(op.along))
            case Dot():
                return self.dot(op)
            case Store():
                return self.store(op)
            case Carry():
                raise AssertionError("loops are of the tile IR")

    def seen(self, buffer: Buffer) -> Any:
        """The memory of a buffer with the shape that this kernel sees it in."""
        return self.memory[buffer.name].reshape([e.evaluate(self.sizes) for e in buffer.shape])

    def load(self, op: Load) -> Any:
        where = np.broadcast_arrays(*[np.asarray(self.position(d, op)) for d in op.index]) if op.index else []
        inside = self.holds(op.guards, op)
        shape = np.broadcast_shapes(inside.shape, *[w.shape for w in where])
        source = self.seen(op.buffer)
        if 0 in shape or 0 in source.shape:
            return np.full(shape, op.other, op.dtype.numpy)
        read = source[tuple(np.where(inside, w, 0) for w in where)]
        return np.where(inside, read, np.asarray(op.other, op.dtype.numpy))

    def dot(self, op: Dot) -> Any:
        a, b = self.values[op.a].astype(op.dtype.numpy), self.values[op.b].astype(op.dtype.numpy)
        letters = {n: chr(97 + k) for k, n in enumerate(self.names)}
        full = "".join(letters.values())

        def own(x: Any) -> tuple[Any, str]:
            kept = [k for k, n in enumerate(self.names) if x.shape[k] != 1 or self.extents[n] == 1]
            return x.reshape([x.shape[k] for k in kept]), "".join(full[k] for k in kept)

        (x, sx), (y, sy) = own(a), own(b)
        out = "".join(c for c in full if c in sx + sy and c != letters[op.over])
        with np.errstate(all="ignore"):
            result = np.einsum(f"{sx},{sy}->{out}", x, y)
        return result.reshape([self.extents[n] if letters[n] in out else 1 for n in self.names])

    def store(self, op: Store) -> None:
        where = [np.asarray(self.position(d, op)) for d in op.index]
        target = self.seen(op.buffer)
        if target.size == 0:
            return
        shape = np.broadcast_shapes(self.values[op.value].shape, *[w.shape for w in where])
        value = np.broadcast_to(self.values[op.value], shape)
        target[tuple(np.broadcast_to(w, shape) for w in where)] = value if where else value.item()
