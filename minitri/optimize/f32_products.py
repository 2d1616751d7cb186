"""kernels → kernels: computes products of f32 arrays on tensor cores, from three products of TF32 parts.

    %2: f32[i, j] = dot %0, %1 {over = r, precision = f32}       becomes       precision = tf32x3

A tensor core multiplies TF32 numbers, which have 11 significant bits. So each factor is written as a sum of two such
numbers, a = a1 + a2 and b = b1 + b2. The product is a1*b2 + a2*b1 + a1*b1. The smallest part, a2*b2, is left out (Ootomo
and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022). On a Hopper GPU three TF32 products take
less time than one product by the units for f32.

The sum is as exact as one of IEEE multiplications and additions. Let u = 2**-24, and let S be the sum of |a*b| along the
depth K, the axis that is summed over. Then the errors are at most

    IEEE      each of K additions is rounded                                           K u S
    parts     a2*b2 <= 4u a*b; the last bits of a2 and b2, at most 2u each             8 u S
              tensor cores truncate: 6.5u for each of the instructions of a block     52 u S   (64 elements: 8)
              a block's sum is added to the other blocks' by an IEEE addition       K/32 u S   (blocks of 32)

A tensor core aligns the terms of an instruction to the largest one with two more bits, and then cuts off what remains.
That costs 9 * u/2 for eight products and a sum, and 2u in the end. From a depth of 64 on, the parts have the smaller
bound: 8 + 52 + 2 < 64. Tests on a GPU measure the errors.

Infinities, NaN and numbers of 2**101 and more have no such parts. The sum is then not finite, and the factors themselves
are multiplied (minitri/base/numpy_semantics.py). deferred_checks.py looks at the sum once, after the loop.

In: the kernels of a plan, and a target. Out: the same kernels. A product that leaves its precision to the compiler has
the precision "tf32x3" or "ieee". "ieee" stays for unknown sizes, small products, chips without fast tensor cores,
products that share a loop with other reductions, and factors that are not contiguous along the depth. Tensor cores need
such TF32 blocks; pack_operands.py copies large factors into this layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from minitri.base.dims import Dim, Symbol
from minitri.hardware.chips import peak
from minitri.hardware.targets import Target
from minitri.kernels.ir import Dot, Kernel, Load, Op, Plan, needed, with_operands

LEAST_DEPTH = 64
FASTER = 4  # how many times as many operations tensor cores must do in TF32 as the other units do in f32
WORTH = 1 << 28  # the fewest operations of a product: they take about five microseconds
ROWS = 32  # the fewest rows and columns: tensor cores compute 64 rows at a time


def on_tensor_cores(plan: Plan, target: Target) -> Plan:
    fast = has_fast_tf32(target)
    return replace(plan, kernels=tuple(_chosen(kernel, fast) for kernel in plan.kernels))


def has_fast_tf32(target: Target) -> bool:
    """Whether three products of TF32 numbers take less time than one product in f32."""
    known = peak(target) if target.kind == "cuda" else None
    return known is not None and known.rates.get("tf32", 0) >= FASTER * known.rates["f32"]


def is_worth(sizes: Sequence[Dim], depth: Dim) -> bool:
    """Whether a product of these sizes is large and deep enough. `sizes` are those of the result."""
    if any(e.constant is None for e in (*sizes, depth)):
        return False
    *_, m, n = map(int, sizes)
    work = 2 * math.prod(map(int, (*sizes, depth)))
    return int(depth) >= LEAST_DEPTH and min(m, n) >= ROWS and work >= WORTH


def _chosen(kernel: Kernel, fast: bool) -> Kernel:
    """The kernel, with a precision for each product that leaves it to the compiler."""
    if not any(dot.precision == "f32" for dot in kernel.dots):
        return kernel
    parts = fast and len(kernel.dots) == 1 and kernel.shared_loop is None and _suits(kernel, kernel.dots[0])
    made: dict[Op, Op] = {}
    for op in kernel.body:
        new = with_operands(op, made.__getitem__)
        if isinstance(new, Dot) and new.precision == "f32":
            new = replace(new, precision="tf32x3" if parts else "ieee")
        made[op] = new
    return replace(kernel, body=tuple(made.values()))


def _suits(kernel: Kernel, dot: Dot) -> bool:
    extents = {a.name: a.extent for a in kernel.axes}
    sizes = [extents[name] for name in dot.axes if name not in dot.tile] + [extents[name] for name in dot.tile]
    loads = [op for factor in (dot.a, dot.b) for op in needed(factor) if isinstance(op, Load) and dot.over in op.axes]
    return is_worth(sizes, extents[dot.over]) and all(_is_contiguous(load, dot.over) for load in loads)


def _is_contiguous(load: Load, depth: str) -> bool:
    """Whether an array is contiguous along the depth, and its rows begin at multiples of 16 bytes."""
    parted = load.offset.coefficient(Symbol(depth, "axis"))
    return parted is not None and parted[0] == 1 and all(c * load.dtype.bytes % 16 == 0 for _, c in parted[1].terms)
