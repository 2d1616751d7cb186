"""Chooses the loads and stores of a program that go through a tensor descriptor.

A descriptor says where an array is and how large a block of it is. The host makes it at the launch. From Hopper on,
GPUs have a copy engine (TMA) for descriptors: one thread asks for a block and continues. No thread computes addresses.
Elements outside of the array arrive as zeros and are not written, so no test for the end of the array is needed.

In: a masked program. Out: for each access that a descriptor can make, the block along each axis of its array.
The conditions are those of CUDA's tensor maps:

  - The elements of the last axis are contiguous.
  - All other strides are multiples of 16 bytes and of the next stride.
  - A block has at most 256 elements along an axis.

Rows that are shorter than a block are not worth a descriptor. Only the call knows whether an array begins at a
multiple of 16 bytes (minitri/program_stages.py).

Left out: gathers, unknown sizes, blocks without exactly two axes; stores of programs without `descriptor_stores`, and
of values with other axes than their block. Integers are not stored either: a kernel may compute them in fewer bits
than they have in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minitri.base.dims import Dim
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Buffer, Load, Store
from minitri.optimize.schedules.products import has_steps, may_be_described
from minitri.tiles.ir import Access, Program, TileAxis, index_axes, lane_number

LONGEST = 256  # elements of a block along an axis

Block = tuple[int, ...]
Text = Callable[[Dim], str]  # of an index


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument of a kernel: blocks of the array behind one of its pointers. `strides`: in elements."""

    name: str
    pointer: int
    buffer: Buffer
    block: Block
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(name: str, pointer: int, buffer: Buffer, block: Block) -> Descriptor:
        shape = tuple(int(d) for d in buffer.shape)
        unit, strides = ALIGNMENT // buffer.dtype.bytes, [int(s) for s in buffer.strides]
        rows = [s * n for s, n in zip(strides[:-1], shape) if n > 1]  # how far each axis reaches
        past = max(rows, default=-(-shape[-1] // unit) * unit)
        for k, extent in enumerate(shape[:-1]):
            if extent == 1:  # its step is not used, but must fit in with the others
                strides[k] = strides[k - 1] if k else past
        return Descriptor(name, pointer, buffer, block, shape, tuple(strides))

    @property
    def signature(self) -> str:
        """Its type, as Triton writes it."""
        return f"tensordesc<{self.buffer.dtype.signature}{list(self.block)}>"


class Descriptors:
    """Those of a program. `blocks`: the accesses that they do, and the block of each; `made`: what the launch makes."""

    def __init__(self, program: Program, pointers: Sequence[Buffer]) -> None:
        self.program = program
        self.blocks = described(program)
        wanted = dict.fromkeys((op.buffer, block) for op, block in self.blocks.items())
        self.made = tuple(Descriptor.of(f"desc{k}", pointers.index(b), b, block) for k, (b, block) in enumerate(wanted))
        self.names = dict(zip(wanted, (d.name for d in self.made)))

    def load(self, op: Load, context: tuple[str, ...], expression: Text) -> str:
        """A block by its first index, as a tile with the axes `context`."""
        name, lanes, start = self._place(op, expression)
        text = f"{name}.load([{start}])"
        if len(self.blocks[op]) > len(lanes):
            text = f"tl.reshape({text}, ({', '.join(str(a.lanes) for a in lanes)}))"
        return text if tuple(a.name for a in lanes) == context else f"tl.trans({text})"

    def store(self, op: Store, context: tuple[str, ...], value: str, expression: Text) -> str:
        """Stores `value`, a tile with the axes `context`, as a block."""
        name, lanes, start = self._place(op, expression)
        text = value if tuple(a.name for a in lanes) == context else f"tl.trans({value})"
        if len(self.blocks[op]) > len(lanes):
            text = f"tl.reshape({text}, {self.blocks[op]})"
        return f"{name}.store([{start}], {text})"

    def _place(self, op: Access, expression: Text) -> tuple[str, list[TileAxis], str]:
        """The name of a descriptor, the axes of its block that the tile has, and the block's first index."""
        along = [a for a in (_along(self.program, d) for d in op.index) if a is not None]
        lanes = [a.axis for a in along if a.axis is not None]
        return self.names[op.buffer, self.blocks[op]], lanes, ", ".join(a.first(expression) for a in along)


def described(program: Program) -> dict[Access, Block]:
    if not program.descriptors or program.wide:
        return {}
    found = {op: _block(program, op) for op in program.ops() if isinstance(op, (Load, Store))}
    return {op: block for op, block in found.items() if block is not None}


def _may_be_stored(program: Program, op: Store) -> bool:
    """Whether a descriptor can write the value: a float with the axes of its block."""
    return program.descriptor_stores and op.value.dtype.is_float and index_axes(op) == {*op.value.axes}


def _block(program: Program, op: Access) -> Block | None:
    possible = may_be_described(op) if isinstance(op, Load) else _may_be_stored(program, op)
    if not possible or not has_steps(op.buffer):
        return None
    along = [_along(program, d) for d in op.index]
    if any(a is None for a in along):
        return None
    axes = [a.axis for a in along if a is not None]
    lanes = [a for a in axes if a is not None]
    block = tuple(1 if a is None else a.lanes for a in axes)
    ends = {e - 1 - d for d, e, a in zip(op.index, op.buffer.shape, axes) if a is not None}
    fits = len(lanes) == len({a.name for a in lanes}) == 2 and all(a.lanes == a.block for a in lanes)
    tested = set(op.mask.conditions) if op.mask else set[Dim]()
    small = max(block) <= LONGEST and block[-1] <= int(op.buffer.shape[-1])
    wide = block[-1] * op.buffer.dtype.bytes >= ALIGNMENT
    last = along[-1].offset.terms if along[-1] is not None else ()
    aligned = all(c * op.buffer.dtype.bytes % ALIGNMENT == 0 for _, c in last)  # Triton's interpreter asks for it
    return block if fits and small and wide and aligned and tested <= ends else None


@dataclass(frozen=True, slots=True)
class _Along:
    """An index as the elements of one axis (None: no axis) plus an offset that is one number for a program.

    The elements start at the present block (`walks`) or at 0.
    """

    axis: TileAxis | None
    walks: bool
    offset: Dim

    def first(self, expression: Text) -> str:
        """The first index of a block."""
        if self.axis is None or not self.walks or self.axis.role == "whole":
            return expression(self.offset)
        start = f"{self.axis.name}_tile * {self.axis.block}" if self.axis.role == "grid" else f"{self.axis.name}_start"
        return start if self.offset == 0 else f"{start} + {expression(self.offset)}"


def _along(program: Program, index: Dim) -> _Along | None:
    """None if an index is more than the elements of one axis plus one number for a program."""
    symbols = {s.name for s in index.symbols()}
    axes = [a for a in program.axes if a.block > 1 and symbols & {a.name, f"{a.name}_lane"}]
    if not axes:
        return _Along(None, False, index)
    axis = axes[0]
    walks = axis.name in symbols
    offset = index - (axis.index if walks else lane_number(axis.name))
    single = {a.name for a in program.axes if a.lanes == 1}
    return _Along(axis, walks, offset) if {s.name for s in offset.symbols()} <= single else None
