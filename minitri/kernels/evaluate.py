"""Evaluates kernels with numpy. The result that numpy computes defines what a kernel means.

The function `evaluate` takes a plan of kernels, an array for each input, and the sizes. The function returns a tuple
with an array for each output. The one idea: numpy computes one op after another, each for all elements at once. The
value of each op is a numpy array with one dimension for each axis of the kernel. If a value does not depend on an axis,
its array has size 1 along the dimension of this axis. Because the dimensions of all values are in the same order,
numpy's broadcasting combines two values along the axes that have the same name.

    axes i, r     %0: f32[i, r] = load x[i, r]      an array (I, R)
                  %1: f32[i] = reduce.sum %0        an array (I, 1)

Memory is flat: a buffer is a shape and strides over a one-dimensional array. The class `Values` computes the value of
one op. For tile programs, minitri/tiles/evaluate.py has a subclass of `Values` that also evaluates loops and masks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.dims import Dim, Symbol
from minitri.base.nodes import Record
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Op, Plan


class Memory(Record):
    """The memory of one array, as a flat numpy array. `first` is the position in `flat` of the element with index 0."""

    flat: Any
    first: int = 0

    def view(self, shape: Sequence[int], strides: Sequence[int]) -> Any:
        item = self.flat.itemsize
        return np.lib.stride_tricks.as_strided(self.flat[self.first :], shape, [s * item for s in strides])


Arrays = Mapping[str, Any]  # arrays by name
Memories = Mapping[str, Memory]
Sizes = Mapping[str, int]


def allocate(plan: Plan, inputs: Arrays, sizes: Sizes) -> dict[str, Memory]:
    """Allocates memory for each buffer of a plan, and returns a dict from the buffer's name to its memory. Inputs get
    the strides that the plan specifies.

    Temporaries and outputs start with the value 77 or -77, not 0, so that an element that no kernel writes is noticed.
    """
    memory = {b.name: _laid_out(b, np.asarray(inputs[b.name], b.dtype.numpy), sizes) for b in plan.inputs}
    for b in (*plan.temporaries, *plan.outputs):
        fill = -77 if b.dtype.kind in "if" else 77
        memory[b.name] = _laid_out(b, np.full(b.layout(sizes)[0], fill, b.dtype.numpy), sizes)
    return memory


def _laid_out(b: Buffer, array: Any, sizes: Sizes) -> Memory:
    _, strides = b.layout(sizes)
    reach = [(n - 1) * s for n, s in zip(array.shape, strides) if n > 1 and array.size]
    first = -sum(r for r in reach if r < 0)
    count = 1 + first + sum(r for r in reach if r > 0)
    if count == array.size and not first and array.flags.c_contiguous:
        return Memory(array.reshape(-1))
    made = Memory(np.zeros(count if array.size else 0, array.dtype), first)
    if array.size:
        made.view(array.shape, strides)[...] = array
    return made


def result(memory: Memory, buffer: Buffer, sizes: Sizes) -> Any:
    """Returns the contents of an output buffer as a numpy array."""
    return memory.view(*buffer.layout(sizes))


class Values:
    """Computes the ops (operations) of a kernel or tile program, one after another. `names` are the names of the
    kernel's axes, in the kernel's order.

    A subclass of `Values` for programs with loops must define the method `carry`.
    """

    def __init__(self, names: Sequence[str], memory: Memories, sizes: Sizes) -> None:
        self.names, self.memory, self.sizes = list(names), memory, sizes
        self.env: dict[Symbol, Any] = {Symbol(n): v for n, v in sizes.items()}
        self.values: dict[Op, Any] = {}

    def along(self, name: str, line: Any) -> Any:
        """Reshapes the one-dimensional array `line` to size 1 along all axes except `name`."""
        return line.reshape([-1 if n == name else 1 for n in self.names])

    def width(self, name: str) -> int:
        """The number of elements that the numpy arrays have along an axis."""
        return int(self.env[Symbol(name, "axis")].size)

    def run(self, op: Op) -> None:
        if (value := self.value(op)) is not None:
            value = np.asarray(value, op.dtype.numpy)
            self.values[op] = value.reshape([1] * (len(self.names) - value.ndim) + list(value.shape))

    def position(self, expr: Dim, op: Op) -> Any:
        """Returns the value of an index expression. A symbol such as `p0` in the expression stands for the value of an
        earlier op.
        """
        picks = getattr(op, "picks", ())
        env = {**self.env, **{s: self.values[v] for s, v in picks}} if picks else self.env
        return expr.compute(env)

    def holds(self, conditions: Sequence[Dim], op: Op) -> Any:
        inside: Any = np.ones([1] * len(self.names), bool)
        for c in conditions:
            inside = inside & (self.position(c, op) >= 0)
        return inside

    def value(self, op: Op) -> Any:
        match op:
            case ir.Constant():
                return op.value
            case ir.Scalar():
                return self.memory[op.buffer.name].flat[0]
            case ir.Position():
                return self.position(op.expr, op)
            case ir.Inside():
                return self.holds(op.conditions, op)
            case ir.Compute():
                return numpy_array_operations.apply(op.op, op.dtype, [self.values[a] for a in op.args])
            case ir.Spread():
                shape = [self.width(n) if n in op.axes else 1 for n in self.names]
                return np.broadcast_to(self.values[op.x], shape)
            case ir.Count():
                return np.prod([self.width(a) for a in op.over], dtype=np.int64)
            case ir.Old():
                return self.values[op.x]
            case ir.Scan():
                return numpy_array_operations.scan(op.op, self.values[op.x], self.names.index(op.along))
        return getattr(self, type(op).__name__.lower())(op)  # load, store, reduce, dot, carry

    def reduce(self, op: ir.Reduce) -> Any:
        places = tuple(self.names.index(a) for a in op.over)
        return np.expand_dims(numpy_array_operations.reduce(op.op, self.values[op.x], places), places)

    def dot(self, op: ir.Dot) -> Any:
        """Computes a matrix product, which has a row axis, a column axis and a summed axis. All axes except the row
        axis, the column axis and the summed axis are batch axes.
        """
        a, b = self.values[op.a], self.values[op.b]
        k = self.names.index(op.over)
        row, column = (self.names.index(n) for n in op.tile)
        order = [d for d in range(len(self.names)) if d not in (row, column, k)]
        a = a.transpose([*order, column, row, k])[..., 0, :, :]
        b = b.transpose([*order, row, k, column])[..., 0, :, :]
        product = np.expand_dims(numpy_array_operations.contract(a, b, op.dtype, op.precision), -1)
        product = product.transpose(np.argsort([*order, row, column, k]))
        return product if op.acc is None else self.values[op.acc] + product

    # ---- accesses --------------------------------------------------------------------

    def access(self, op: ir.Access) -> tuple[Any, Any]:
        """Returns for each element of a load or store its position in flat memory, and whether this element is
        accessed.
        """
        inside = self.holds(self.tests(op), op)
        index = [np.asarray(self.position(d, op)) for d in op.index]
        self.check(op, index, inside)
        place: Any = self.memory[op.buffer.name].first
        for i, stride in zip(index, op.buffer.strides):
            place = place + i * stride.evaluate(self.sizes)  # may overflow: guards prevent a wrong access
        return np.asarray(place), inside

    def tests(self, op: ir.Access) -> Sequence[Dim]:
        """Returns the integer expressions that must be >= 0 for an access to happen."""
        return op.guards

    def check(self, op: ir.Access, index: Sequence[Any], inside: Any) -> None:
        """A hook, called before each access to memory. A subclass can override the method `check` to raise an error for
        a wrong access.
        """

    def note(self, op: ir.Access, offset: Any, inside: Any) -> None:
        """A hook, called when the address of a load or store has been computed. A subclass can override this method to
        record the memory positions that a load or store accesses.
        """

    def load(self, op: ir.Load) -> Any:
        """Returns the loaded elements. If a guard (a condition of the load) is false for an element, the element has
        the value `other`.
        """
        offset, inside = self.access(op)
        self.note(op, offset, inside)
        source, other = self.memory[op.buffer.name].flat, np.asarray(op.other, op.dtype.numpy)
        shape = np.broadcast_shapes(inside.shape, offset.shape)
        if 0 in (source.size, *shape) or not inside.any():
            return np.broadcast_to(other, shape)
        if inside.all():
            return np.broadcast_to(source[offset], shape)
        return np.where(inside, source[np.where(inside, offset, 0)], other)

    def store(self, op: ir.Store) -> None:
        offset, inside = self.access(op)
        value, offset, inside = np.broadcast_arrays(self.values[op.value], offset, inside)
        self.note(op, offset[inside], inside)
        self.memory[op.buffer.name].flat[offset[inside]] = value[inside]


# ---- kernels -----------------------------------------------------------------------------


@np.errstate(all="ignore")
def evaluate(plan: Plan, inputs: Arrays, sizes: Sizes) -> tuple[Any, ...]:
    """Runs a plan and returns its outputs as numpy arrays. Temporaries and outputs start with arbitrary values, not
    zeros.
    """
    memory = allocate(plan, inputs, sizes)
    for kernel in plan.kernels:
        values = Values([a.name for a in kernel.axes], memory, sizes)
        for a in kernel.axes:
            values.env[a.symbol] = values.along(a.name, np.arange(a.extent.evaluate(sizes)))
        for op in kernel.body:
            values.run(op)
    return tuple(result(memory[b.name], b, sizes) for b in plan.outputs)
