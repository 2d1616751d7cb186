"""tile → tile: makes the GPU's copy engine ("TMA") load and store blocks, through tensor descriptors.

    program k0(…) warps 4 descriptors {                    program k0(…) warps 4 {
    %2: f16[i, k] = load x[i, k] {mask = [i < 1000]}       %2: … {mask = [i < 1000], descriptor = [64, 32]}

A descriptor contains the address of an array, its shape and strides, and the shape of a block. The host makes the
descriptor when it launches the kernel. GPUs since Hopper have a copy engine (TMA) for descriptors: one thread requests
a block and continues. If a block is accessed through a descriptor, no thread computes addresses. Elements outside of
the array are loaded as zeros and are not stored, so loads and stores through descriptors need no masks.

The pass `tensor-descriptors` changes tile programs whose field `descriptors` is true. The pass sets the block shape of
each load or store that can use a descriptor. CUDA accepts a descriptor for a load or store under these conditions:

  - The elements of the last axis are contiguous.
  - Each other stride is a multiple of 16 bytes, and a multiple of the next stride.
  - A block has at most 256 elements along an axis.

Rows that are shorter than a block do not use a descriptor. Whether an array begins at a multiple of 16 bytes is known
only when the program is called (minitri/base_program.py).

Gathers do not use descriptors. Arrays of unknown sizes are not accessed through descriptors. A block that is accessed
through a descriptor has exactly two axes. Stores of integers do not use descriptors. Stores that repeat a value along
an axis of the stored block do not use a descriptor. Stores use descriptors only if the program has the option
`descriptor_stores`.
"""

from minitri.base.dims import Dim
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Load, Store
from minitri.optimize.schedules.products import has_steps, may_be_described
from minitri.tiles.ir import Access, Program, block_index, index_axes

LONGEST = 256  # elements of a block along an axis


def describe(program: Program, allowed: bool) -> Program:
    """Returns the program in which each load or store with a tensor descriptor has a block shape.

    The argument `allowed` says whether the options and the arrays of the call allow descriptors.
    """
    described = program.without_descriptors()
    if not (allowed and program.descriptors) or program.wide:
        return described
    for op in program.ops():
        if isinstance(op, (Load, Store)) and (block := _block(program, op)) is not None:
            described = described.hinted([op], descriptor=block)
    return described


def _may_be_stored(program: Program, op: Store) -> bool:
    """Checks whether the store `op` can write its value through a tensor descriptor."""
    # the value must have all axes of the stored block
    return program.descriptor_stores and op.value.dtype.is_float and index_axes(op) == {*op.value.axes}


def _block(program: Program, op: Access) -> tuple[int, ...] | None:
    possible = may_be_described(op) if isinstance(op, Load) else _may_be_stored(program, op)
    if not possible or not has_steps(op.buffer):
        return None
    along = [a for a in (block_index(program, d) for d in op.index) if a is not None]
    if len(along) < len(op.index):
        return None
    lanes = [a.axis for a in along if a.axis is not None]
    block = tuple(1 if a.axis is None else a.axis.lanes for a in along)
    ends = {e - 1 - d for d, e, a in zip(op.index, op.buffer.shape, along) if a.axis is not None}
    fits = len(lanes) == len({a.name for a in lanes}) == 2 and all(a.lanes == a.block for a in lanes)
    tested = set(op.mask.conditions) if op.mask else set[Dim]()
    small = max(block) <= LONGEST and block[-1] <= int(op.buffer.shape[-1])
    wide = block[-1] * op.buffer.dtype.bytes >= ALIGNMENT
    # Triton's interpreter needs blocks that begin at multiples of 16 bytes.
    aligned = all(c * op.buffer.dtype.bytes % ALIGNMENT == 0 for _, c in along[-1].offset.terms)
    return block if fits and small and wide and aligned and tested <= ends else None
