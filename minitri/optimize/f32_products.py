"""kernels → kernels: computes a matrix product of f32 arrays on tensor cores, as the sum of three products of TF32
parts.

    %2: f32[i, j] = dot %0, %1 {over = r, precision = f32}       becomes       precision = tf32x3

Each factor is written as a sum of two TF32 numbers, which a tensor core multiplies. On a Hopper GPU three products of
TF32 numbers take less time than one product on the units for f32. The sum of the three TF32 products is as exact as one
f32 product (minitri/base/tf32_splitting.py).

Infinities, NaN and numbers of 2**101 and more cannot be split into TF32 parts. If a factor contains a number that
cannot be split, the sum is not finite, and the f32 factors themselves are multiplied
(minitri/base/numpy_array_operations.py). deferred_tf32_checks.py makes the kernel check the sum only once, after the loop.

In: the kernels of a plan. Out: the same kernels, in which every product has a precision. A product whose `precision`
argument is absent gets the precision "tf32x3" or "ieee". Products of unknown or small sizes get "ieee", and so do all
products on chips without fast tensor cores. Products that share a loop with other reductions get "ieee" too. Products
whose factors are not contiguous along the depth (the summed axis) also get "ieee". Tensor cores need TF32 blocks that
are contiguous along the depth. pack_operands.py copies large factors into a layout that is contiguous along the depth.
"""

from dataclasses import replace

from minitri.base.dims import Symbol
from minitri.kernels.ir import Dot, Kernel, Load, Op, Plan, needed, rewritten
from minitri.optimize.pack_operands import suits_parts


def on_tensor_cores(plan: Plan, fast: bool) -> Plan:
    """Chooses the precision of products of f32 arrays. `fast` says whether three products of TF32 numbers take less
    time on the chip than one product in f32.
    """
    return replace(plan, kernels=tuple(_chosen(kernel, fast) for kernel in plan.kernels))


def _chosen(kernel: Kernel, fast: bool) -> Kernel:
    """Returns the kernel with a precision for each product for which the user has not chosen a precision."""
    if not any(dot.precision == "f32" for dot in kernel.dots):
        return kernel
    parts = fast and len(kernel.dots) == 1 and kernel.shared_loop is None and _suits(kernel, kernel.dots[0])

    def chosen(op: Op) -> Op:
        left_open = isinstance(op, Dot) and op.precision == "f32"
        return replace(op, precision="tf32x3" if parts else "ieee") if left_open else op

    return replace(kernel, body=tuple(rewritten(kernel.body, chosen).values()))


def _suits(kernel: Kernel, dot: Dot) -> bool:
    extents = {a.name: a.extent for a in kernel.axes}
    sizes = [extents[name] for name in dot.axes if name not in dot.tile] + [extents[name] for name in dot.tile]
    loads = [op for factor in (dot.a, dot.b) for op in needed(factor) if isinstance(op, Load) and dot.over in op.axes]
    return suits_parts(sizes, extents[dot.over]) and all(_is_contiguous(load, dot.over) for load in loads)


def _is_contiguous(load: Load, depth: str) -> bool:
    """Checks whether a factor is contiguous along the depth (the summed axis), and whether its rows begin at multiples
    of 16 bytes.
    """
    parted = load.offset.coefficient(Symbol(depth, "axis"))
    return parted is not None and parted[0] == 1 and all(c * load.dtype.bytes % 16 == 0 for _, c in parted[1].terms)
