"""tile → tile: checks a sum of products of TF32 parts only once, when the loop for the sum has ended.

    for r {                                                   for r {
      %4: f32[i, r] = load x[i, r]                              …
      %5: f32[r, j] = load w[r, j]                              %6: … = dot %4, %5, %3 {…, precision = tf32x3_unchecked}
      %6: f32[i, j] = dot %4, %5, %3 {…, precision = tf32x3}    next %3 = %6
      next %3 = %6                                            }
    }                                                         for s {redo = %3} {
                                                                %8: f32[i, s] = load x[i, s]
                                                                %9: f32[s, j] = load w[s, j]
                                                                %10: f32[i, s, j] = multiply %8, %9
                                                                %11: f32[i, j] = reduce.sum %10 {over = [s]}
                                                                %12: f32[i, j] = add %7, %11
                                                                next %7 = %12
                                                              }

Factors that are infinite, NaN or very large cannot be split into TF32 parts (f32_products.py). If a factor cannot be
split into TF32 parts, the parts are NaN. Once a TF32 part is NaN, the partial sum is never finite again. One check of
the final sum is enough: it finds all factors that cannot be split into TF32 parts. If the final sum is not finite, a
second loop computes the sum again from the f32 factors in IEEE arithmetic. The second loop handles one index of the
summed axis per iteration, so it needs little code and few registers.

The pass `deferred-tf32-checks` changes loops that add products of TF32 parts to a sum. After each changed loop, the
pass inserts a second loop, which computes the sum again if the check fails. The inserted loop has the attribute `redo`.
Several loops can add products to one sum (skip_blocks/skip.py). All second loops for this sum come after the last loop
that adds a product to the sum. A loop that carries several values to its next iteration is not changed. A loop is
changed only if each of its ops, except the product, is a load, a condition on indices or an elementwise operator.
"""

from dataclasses import replace

from minitri.base.dims import Dim, Symbol, axis
from minitri.kernels import ir
from minitri.kernels.ir import Carry, Compute, Constant, Dot, Inside, Load, Mask, Op, Reduce, Spread, rewritten
from minitri.tiles.ir import Loop, Program, Stmt

COPIED = (Load, Compute, Constant, Inside, Spread)  # ops in the loop that can be repeated for a single index


def defer(program: Program) -> Program:
    """Moves the checks of TF32 products for inf and nan from the body of each loop to the place after the loop."""
    loops = program.loops
    for carry in dict.fromkeys(c for loop in loops for c, _ in loop.carries):
        found = [loop for loop in loops if carry in dict(loop.carries)]
        if all(map(_is_deferrable, found)):
            program = _deferred(program, carry, found)
    return program


def _is_deferrable(loop: Loop) -> bool:
    """Checks whether a loop computes one f32 matrix product from TF32 products, and nothing else."""
    if len(loop.carries) != 1:
        return False
    carry, dot = loop.carries[0]
    if not isinstance(dot, Dot) or dot.precision != "tf32x3" or dot.acc is not carry or loop.axes != (dot.over,):
        return False
    used = (op.index if isinstance(op, Load) else op.conditions for op in loop.body if isinstance(op, (Load, Inside)))
    single = {s.name for dims in used for d in dims for s in d.symbols()}
    blocked = {f"{dot.over}_start", f"{dot.over}_lane"}  # an index in a block has no meaning without the block
    copied = all(isinstance(op, COPIED) and not getattr(op, "picks", ()) for op in loop.body[:-1])
    return copied and not single & blocked


def _deferred(program: Program, carry: Carry, loops: list[Loop]) -> Program:
    """Moves the check for infinite or NaN sums of TF32 products out of a loop."""
    over = loops[0].axes[0]
    taken = {a.name for a in program.axes}
    name = next(n for n in (*"stuvw", *(f"w{k}" for k in range(1, len(taken) + 1))) if n not in taken)
    unchecked = replace(carry)
    made: dict[Stmt, tuple[Stmt, ...]] = {carry: (unchecked,)}
    # Each loop that adds products gets a second loop, which computes the sum again if the sum is not finite. After the
    # second loops, `carry` is the final sum, so later statements need no change.
    again: list[Stmt] = [carry]
    for loop in loops:  # every loop adds products to the sum `carry`
        dot = loop.carries[0][1]
        assert isinstance(dot, Dot)
        product = replace(dot, precision="tf32x3_unchecked", acc=unchecked)
        made[loop] = (replace(loop, carries=((unchecked, product),), body=(*loop.body[:-1], product)),)
        ops = _single_products(loop, dot, carry, name, program.axis(over).inside)
        again.append(replace(loop, axes=(name,), carries=((carry, ops[-1]),), body=ops, redo=unchecked))
    hints = {
        made[about][0] if isinstance(about, Loop) and about in made else about: h for about, h in program.hints.items()
    }
    made[loops[-1]] += tuple(again)
    body = [new for stmt in program.body for new in made.get(stmt, (stmt,))]
    axes = [x for a in program.axes for x in ((a, replace(a, name=name, block=1)) if a.name == over else (a,))]
    return replace(program, axes=tuple(axes), body=tuple(body), hints=hints)


def _single_products(loop: Loop, dot: Dot, carry: Carry, name: str, inside: Dim) -> tuple[Op, ...]:
    """Rewrites a loop body: f32 arithmetic replaces TF32, and each iteration adds one product to each sum."""
    index = {Symbol(dot.over, "axis"): axis(name)}  # one index of the summed axis in each iteration

    def moved(d: Dim) -> Dim:
        return d.substitute(index)

    def single(op: Op) -> Op:
        op = ir.reindexed(replace(op, axes=tuple(name if a == dot.over else a for a in op.axes)), moved)
        if not isinstance(op, Load) or op.mask is None:
            return op
        # In a loop that ends at the end of its axis, each index is inside the axis, so the mask condition `inside` (an
        # index lies inside the axis) is not tested.
        tested = tuple(moved(c) for c in op.mask.conditions if c != inside or loop.last is not None)
        reasons = tuple(r for r in op.mask.reasons if not r.startswith((f"{dot.over}: ", f"{dot.over} ")))
        return replace(op, mask=Mask(tested, reasons))

    made = rewritten(loop.body[:-1], single)
    factors = tuple(made.get(f, f) for f in (dot.a, dot.b))
    batch = [a for a in dot.axes if a not in dot.tile]
    same = {"dtype": dot.dtype, "spans": dot.spans}
    multiplied = Compute(**same, axes=(*batch, *dot.tile, name), op="multiply", args=factors)
    total = Reduce(**same, axes=dot.axes, op="sum", x=multiplied, over=(name,))
    added = Compute(**same, axes=dot.axes, op="add", args=(carry, total))
    return (*made.values(), multiplied, total, added)
