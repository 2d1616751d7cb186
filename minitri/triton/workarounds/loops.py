"""tile → tile: adds hints for loops that Triton 3.6 compiles wrongly, or not at all.

*Operands that are overwritten while a tensor core reads them.* On a Hopper GPU, a tensor core reads a computed first
operand of a product from registers. A grid program does not wait until the tensor core has read an operand from
registers, but continues with its next instructions. In a pipelined loop, the grid program computes the next operand
while a tensor core reads the previous operand. Triton 3.6 lets the grid program write the next operand to registers
that the tensor core is still reading (triton-lang/triton, issue 9433). The product then reads overwritten registers, so
its results are wrong and differ from call to call.

    for r_start in range(0, 512, BLOCK_R):
        rt.settle()                             becomes wgmma.wait_group 0
        v3 = …

In three cases, the loop needs no hint `wait`, because Triton itself waits for the end of the product. Triton waits for
the end of a product if the second operand of the product is a computed value, not a loaded block. Triton also waits for
a product if other operations of the same iteration use the result of the product, as in attention. Triton also waits
for a product whose first operand comes from another product of the same iteration.

*Accumulators that several loops read.* Triton's pass `OptimizeThreadLocality` transforms loops that reduce a loaded
block and add the result to an accumulator. The pass transforms a loop only if the initial value of the accumulator is a
constant. The pass assumes that only one operation reads the accumulator after the loop. If several operations read the
accumulator after the end of its loop, Triton 3.6 stops with "PassManager::run failed" (triton-lang/triton, pull request
11305). The function `rt.unknown` hides from the pass that the initial value of the accumulator is a constant. Therefore
the pass skips the loop. LLVM later removes the code of `rt.unknown`, so `rt.unknown` adds no instructions to the
machine code.

    m = rt.unknown(tl.full((8, ), float("-inf"), tl.float32))
    for r_start in range(0, 66, BLOCK_R):
        v5 = rt.reduce_max(v4, 1)               v4 is a result of tl.load
        m = rt.maximum(m, v5)
    ... two more loops read m

The functions `settle` and `hide_starts` take a tile program whose loads and stores have masks. Both functions return
the tile program with added hints. The hint `wait` makes a loop wait until tensor cores have read the operands of
products from registers. The hint `unknown_start` hides the initial value of an accumulator from Triton. This file can
be deleted when Triton 3.6 is no longer supported.
"""

from minitri.kernels.ir import Carry, Compute, Dot, Load, Op, Reduce, needed
from minitri.tiles.ir import Loop, Program

ROWS = 64  # rows of one Hopper tensor core instruction; smaller tiles use other instructions, which wait


# ---- products ----------------------------------------------------------------------------------


def settle(program: Program) -> Program:
    return program.hinted([loop for loop in program.loops if settles(program, loop)], wait=True)


def settles(program: Program, loop: Loop) -> bool:
    """Checks whether a loop needs the hint `wait`. The hint is needed if an iteration can overwrite an operand that a
    tensor core still reads.
    """
    dots = [op for op in loop.body if isinstance(op, Dot) and op.on_tensor_cores]
    factors = [program.factors(d) for d in dots]
    risky = [n for n, (d, (first, _)) in enumerate(zip(dots, factors)) if _runs_unawaited(program, loop, d, first)]
    waits = [n for n, (d, (_, second)) in enumerate(zip(dots, factors)) if _is_computed_in_loop(loop, d, second)]
    return max(risky, default=-1) > max(waits, default=-1)


def _runs_unawaited(program: Program, loop: Loop, dot: Dot, first: Op) -> bool:
    """Checks whether a product is asynchronous, and whether the loop computes the product's first operand."""
    row = next(a for a in dot.tile if a in first.axes)
    computed = first in loop.body and not isinstance(first, Load)
    # If the operand is computed from a product, the program has waited for this product.
    of_product = any(isinstance(op, Dot) for op in needed(first) if op in loop.body)
    return computed and not of_product and isinstance(dot.acc, Carry) and program.axis(row).lanes >= ROWS


def _is_computed_in_loop(loop: Loop, dot: Dot, second: Op) -> bool:
    """Checks whether the second operand of a product is computed from values loaded in the loop."""
    # without such loads, Triton computes the operand before the loop
    read = [op for op in needed(second) if isinstance(op, Load) and dot.over in op.axes and op in loop.body]
    return bool(read) and not isinstance(second, Load)


# ---- accumulators ------------------------------------------------------------------------------


def hide_starts(program: Program) -> Program:
    """Hides the initial values of some accumulators from Triton's compiler, so that the compiler does not fail.
    Triton's compiler fails if a loop reduces loaded blocks into an accumulator, and several later loops read this
    accumulator.
    """
    loops = program.loops
    reducing = [(k, c) for k, loop in enumerate(loops) for c, n in loop.carries if _reduces_a_load(loop, n)]
    read_twice = [carry for k, carry in reducing if sum(_reads(later, carry) for later in loops[k + 1 :]) > 1]
    return program.hinted(read_twice, unknown_start=True)


def _reduces_a_load(loop: Loop, following: Op) -> bool:
    added = following.args if isinstance(following, Compute) else ()
    return any(isinstance(op, Reduce) and isinstance(op.x, Load) and op in loop.body for op in added)


def _reads(loop: Loop, carry: Carry) -> bool:
    return any(carry in needed(op) for op in (*loop.body, *(following for _, following in loop.carries)))
