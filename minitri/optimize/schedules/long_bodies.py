"""Gives a program more warps if each thread would otherwise have many instructions.

    gelu(x).mT + y, x: bf16[4096, 4096]     a tile of 128 by 128: 16 warps, so a thread has 32 elements instead of 64

Triton's compilers unroll a tile: each thread has its own instructions for each element that it computes. A kernel
takes longer to compile if each thread has more instructions. With 64 elements per thread, a long expression can take a
second to compile. If a tile is divided among more warps, each thread has fewer elements, and its values fit into
registers. For example, with one warp a kernel with 128 elements per thread moved values to memory, because a thread
has 255 registers. With two warps the kernel was twice as fast (H200). Of 14 random programs with at least 3500
instructions per thread, 10 were faster with two to four times as many warps (1.03 to 2 times), and two were slower
(1.1 times as long). With fewer instructions, more warps cost more than they save, because the warps of a reduction
wait for each other. A kernel with 2200 instructions per thread took 1.3 times as long with 16 warps as with 8 warps.

The function `more_warps` takes a kernel, its block sizes and its number of warps. It doubles the number of warps until
each thread has few instructions, or fewer than 32 elements, or the program has 16 warps. A thread with fewer than 32
elements would load fewer bytes at once if the program had twice as many warps. A sine takes ten times as many
instructions as an exponential, because libdevice also computes the sines of large numbers exactly. So
`sum(sin(x), axis=1)` has more warps than `sum(exp(x), axis=1)`.
"""

import math
from collections.abc import Mapping

from minitri.base.operators import OPERATORS
from minitri.kernels.ir import Compute, Kernel

SPECIAL = 12  # instructions of an operator such as exp
MANY = 32  # elements of a thread
MOST_WARPS = 16  # a GPU whose warps have 64 threads runs at most 1024 threads in a program


def more_warps(kernel: Kernel, blocks: Mapping[str, int], warps: int, most: int) -> int:
    """Returns `warps`, doubled while each thread has at least `MANY` elements and more than `most` instructions."""
    computed = [op for op in kernel.body if isinstance(op, Compute)]
    count = sum(instructions(op.op) * math.prod(blocks.get(a, 1) for a in op.axes) for op in computed)
    while warps < MOST_WARPS and math.prod(blocks.values()) >= MANY * 32 * warps and count > most * 32 * warps:
        warps *= 2
    return warps


def instructions(operator: str) -> int:
    """Returns about how many instructions an operator takes for one element."""
    found = OPERATORS.get(operator)  # a cast is not in the table
    return 1 if found is None else found.instructions or (SPECIAL if found.cost == "special" else 1)
