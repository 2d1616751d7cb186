"""Finds and replaces the schedules of kernels that ptxas (NVIDIA's assembler) would compile to wrong code.

    softmax(q @ k.mT) @ v        v f16[48, 32]: one block of 64 rows, 32 columns wide

Tensor cores of Hopper GPUs read a block of a factor from shared memory, at an address in a register. Triton can reuse
an address of shared memory: it stores one block there, and later another block. For two blocks at the same address,
ptxas 12.8 (of Triton 3.6) computes the addresses of both blocks from one register. If the second block has at most 32
contiguous columns, the machine code from ptxas takes the block's address from an uninitialised register. If the address
of a block is wrong, the product lacks a part, or the program reads memory outside of its arrays.

If software pipelining copies blocks to shared memory in advance, Triton gives each of these blocks an address of its
own. Triton copies no block in advance for a loop of one iteration. Triton never copies a block in advance if the kernel
computes the block, or if the block has fewer than four contiguous bytes. For tiles of fewer than 64 rows, Triton uses
instructions that read both factors from registers, not from shared memory. If ptxas would compile a kernel wrongly,
minitri gives the kernel tiles of fewer than 64 rows. `python tests/undefined_registers.py` searches the machine code of
many kernels for reads of uninitialised registers. This file can be deleted when only ptxas 12.9 (Triton 3.7) and later
are supported.
"""

from dataclasses import replace

from minitri.kernels.ir import Dot, Kernel, Load, needed
from minitri.tiles.schedule import Schedule, ceil_pow2

NARROW = 32  # columns of a narrow block
ROWS = 64  # rows of one Hopper tensor core instruction
COPIED = 4  # the fewest contiguous bytes that Triton copies in advance


def avoided(kernel: Kernel, chosen: Schedule) -> Schedule:
    """Returns the schedule `chosen`, with fewer rows in each tile if ptxas would compile the kernel wrongly.

    ptxas compiles a kernel wrongly only if the kernel has several products.
    """
    dots = [d for d in kernel.dots if d.on_tensor_cores]
    if len(dots) < 2 or not any(_miscompiles(kernel, chosen, d) for d in dots):
        return chosen
    rows = {d.tile[0] for d in dots}
    shorter = {name: (role, min(block, ROWS // 2)) for name, (role, block) in chosen.axes.items() if name in rows}
    return replace(chosen, axes={**chosen.axes, **shorter}, rule=chosen.rule + ", few rows")


def _miscompiles(kernel: Kernel, chosen: Schedule, dot: Dot) -> bool:
    row, column = dot.tile
    narrow = ceil_pow2(chosen.axes[column][1]) <= NARROW and ceil_pow2(chosen.axes[row][1]) >= ROWS
    reads = [op for op in needed(dot.b) if isinstance(op, Load)]
    along = any(op.index and column in {s.name for s in op.index[-1].symbols()} for op in reads)
    return narrow and along and not _is_copied_ahead(kernel, chosen, dot)


def _is_copied_ahead(kernel: Kernel, chosen: Schedule, dot: Dot) -> bool:
    extents = {a.name: a.extent.constant for a in kernel.axes}
    iterates = [extents[a] is None or extents[a] > chosen.axes[a][1] for a in chosen.looped if a in dot.b.axes]  # type: ignore[operator]
    width = extents[dot.tile[1]]
    contiguous = width is not None and width * dot.b.dtype.bytes % COPIED == 0
    return isinstance(dot.b, Load) and any(iterates) and contiguous and chosen.stages > 1
