"""Writes tensor descriptors (descriptions of the blocks of an array), and the loads and stores that use descriptors.

    desc0.load([i_tile * 64, r_start])            loads a block of the array p0, given the block's first index
    desc1.store([i_tile * 64, 0], tl.trans(v5))

The function `descriptors` takes a tile program in which some loads and stores have the hint `descriptor`. It returns
the tensor descriptors of the program. The functions `load` and `store` return the Triton source of one access through a
descriptor. If loads and stores access blocks of several shapes in one array, the array has a descriptor for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Buffer, Load, Store
from minitri.tiles.ir import Access, BlockIndex, Program, TileAxis, block_index

Block = tuple[int, ...]
Text = Callable[[Dim], str]  # the source text of an index expression


class Descriptor(Record):
    """A tensor descriptor: describes the blocks of one array, and is an argument of a kernel.

    `pointer` is the index of the array among the kernel's pointer arguments, counted from 0.

    `shape`, `strides` and `block` are in elements.
    """

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
        rows = [s * n for s, n in zip(strides[:-1], shape) if n > 1]  # the elements that each axis spans in memory
        past = max(rows, default=-(-shape[-1] // unit) * unit)
        for k, extent in enumerate(shape[:-1]):
            if extent == 1:  # this stride is not used, but must be valid
                strides[k] = strides[k - 1] if k else past
        return Descriptor(name, pointer, buffer, block, shape, tuple(strides))

    @property
    def signature(self) -> str:
        """The type of the descriptor argument, in the spelling of Triton."""
        return f"tensordesc<{self.buffer.dtype.signature}{list(self.block)}>"


def descriptors(program: Program, pointers: Sequence[Buffer]) -> dict[tuple[Buffer, Block], Descriptor]:
    """Returns the tensor descriptors of a program, as a dict from each pair (array, shape of a block) to its
    descriptor.
    """
    accesses = [op for op in program.ops() if isinstance(op, (Load, Store)) and program.hint(op).descriptor]
    wanted = dict.fromkeys((op.buffer, program.hint(op).descriptor) for op in accesses)
    return {(b, block): Descriptor.of(f"desc{k}", pointers.index(b), b, block) for k, (b, block) in enumerate(wanted)}


def load(program: Program, op: Load, name: str, context: tuple[str, ...], expression: Text) -> str:
    """Returns Triton source that loads one block of an array. The loaded tile has the axes `context`."""
    lanes, start = _place(program, op, expression)
    text = f"{name}.load([{start}])"
    if len(op.index) > len(lanes):
        text = f"tl.reshape({text}, ({', '.join(str(a.lanes) for a in lanes)}))"
    return text if tuple(a.name for a in lanes) == context else f"tl.trans({text})"


def store(program: Program, op: Store, name: str, context: tuple[str, ...], value: str, expression: Text) -> str:
    """Returns the source text of a statement that stores a tile as a block of an array.

    `value` is the Triton source of the tile, and `context` lists the names of the tile's axes.
    """
    lanes, start = _place(program, op, expression)
    text = value if tuple(a.name for a in lanes) == context else f"tl.trans({value})"
    if len(op.index) > len(lanes):
        text = f"tl.reshape({text}, {program.hint(op).descriptor})"
    return f"{name}.store([{start}], {text})"


def _place(program: Program, op: Access, expression: Text) -> tuple[list[TileAxis], str]:
    """Returns two values: the axes along which a block has several elements, and the source text of the block's first
    index.
    """
    along = [a for a in (block_index(program, d) for d in op.index) if a is not None]
    return [a.axis for a in along if a.axis is not None], ", ".join(_first(a, expression) for a in along)


def _first(along: BlockIndex, expression: Text) -> str:
    """Returns the source text of the index at which a block begins along one axis of the array."""
    axis = along.axis
    if axis is None or not along.walks or axis.role == "whole":
        return expression(along.offset)
    start = f"{axis.name}_tile * {axis.block}" if axis.role == "grid" else f"{axis.name}_start"
    return start if along.offset == 0 else f"{start} + {expression(along.offset)}"
