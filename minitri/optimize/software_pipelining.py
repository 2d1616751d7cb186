"""tile → tile: computes the first product of an iteration at the end of the previous iteration ("software pipelining").

    for r {                                     %a = dot q, load k[i, r_lane]         for the first iteration
      %s = dot q, load k[i, r]                  %s = carry %a
      …                          becomes        for r {
      %z = dot %p, load v[i, r]                   …
      next %y = %z                                %z = dot %p, load v[i, r]
    }                                             %b = dot q, load k[i, r + 128]      for the next iteration
                                                  next %y = %z
                                                  next %s = %b
                                                }

Shared memory can contain two blocks of an array, and an iteration uses one of the two blocks. Triton starts the load of
the next block only at the end of an iteration, when the space of the used block is free. A product at the start of the
next iteration must wait until the block that the product reads has been loaded. In a pipelined loop, the GPU loads
blocks and computes products at the same time.

Software pipelining starts work of the next iteration before the present one ends (Lam, "Software pipelining: an
effective scheduling technique for VLIW machines", 1988). Moving the first ops of an iteration to the end of the
previous iteration is also called rotation scheduling (Chao, LaPaugh and Sha, 1993). This pass is not the optimisation
called loop rotation, which turns a while loop into a do-while loop.

The last iteration of a pipelined loop also computes a product in advance, although no iteration follows. A tensor
descriptor loads zeros past the end of an array, so the last iteration's extra product needs no mask. A loop is
pipelined only if tensor descriptors load the operands of its first product. Short loops, and loops that do not start at
index 0, are not pipelined. Loops whose last block can be incomplete are not pipelined. The pass `software-pipelining`
does not change persistent programs.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from minitri.base.dims import Dim
from minitri.graph.ir import postorder
from minitri.kernels.ir import Carry, Compute, Dot, Load, Op, Spread, children, needed, rewritten
from minitri.optimize.online_reductions.lower import moving
from minitri.optimize.schedules.products import is_described, may_be_described
from minitri.tiles.ir import Loop, Program, Stmt, ends_whole, lane_number

MIN_BLOCKS = 8  # the fewest blocks of the axis (a mask may end the loop earlier)


def rotate(program: Program) -> Program:
    if not program.descriptors or program.persistent:
        return program
    body: list[Stmt] = []
    for stmt in program.body:
        if isinstance(stmt, Loop) and (rotated := _Rotation(program, stmt).statements()):
            # skip-blocks can replace one loop by several loops, and puts the loop over the last blocks first. The
            # pipelined loop and its first product go ahead of these loops. If a product came between two loops with the
            # same sums, NVIDIA's assembler would make the tensor cores wait for each instruction (message C7515).
            later = takewhile(partial(_has_later_blocks, loop=stmt), reversed(body))
            place = len(body) - len(list(later))
            body[place:place] = rotated
        else:
            body.append(stmt)
    return program if body == list(program.body) else replace(program, body=tuple(body))


def _has_later_blocks(before: Stmt, loop: Loop) -> bool:
    """Checks whether `before` is a loop over later blocks of the same axes as `loop`, with the same accumulators."""
    if not isinstance(before, Loop) or before.first is None or before.axes != loop.axes:
        return False
    return {c for c, _ in before.carries} == {c for c, _ in loop.carries}


class _Rotation:
    """Moves the first product of each iteration to the end of the previous iteration."""

    def __init__(self, program: Program, loop: Loop) -> None:
        self.loop, self.axis = loop, program.axis(loop.axes[0])

    def statements(self) -> list[Stmt] | None:
        """Returns the ops that compute the first product, followed by the pipelined loop. Each iteration of the
        pipelined loop computes the product of the next iteration. Returns None if the loop cannot be pipelined.
        """
        makes = self._product() if self._covers_whole_axis() else []
        if not makes:
            return None
        product = makes[-1]
        first = self._copied(makes, lane_number(self.axis.name))
        following = self._copied(makes, self.axis.index + self.axis.block, past_end=True)
        if not all(may_be_described(op) for op in following.values() if isinstance(op, Load)):
            return None
        carry = Carry(dtype=product.dtype, axes=product.axes, spans=product.spans, initial=first[product])
        return [*first.values(), carry, self._rotated(product, carry, following)]

    def _covers_whole_axis(self) -> bool:
        """Checks whether the loop runs over many complete blocks of one axis, from index 0."""
        loop, axis, extent = self.loop, self.axis, self.axis.extent.constant
        if extent is None or extent < MIN_BLOCKS * axis.block or len(loop.axes) > 1 or loop.first is not None:
            return False
        return extent % axis.block == 0 or ends_whole(loop, axis)

    def _product(self) -> list[Op]:
        """Returns the ops of the only matrix product whose operands do not depend on earlier iterations."""
        carried = moving(self.loop.body, (c for c, _ in self.loop.carries))
        dots = [op for op in self.loop.body if isinstance(op, Dot)]
        free = [d for d in dots if d not in carried]
        # The loop must have several products, of which exactly one is independent of earlier iterations.
        if len(free) != 1 or len(dots) == 1:
            return []
        wanted = needed(free[0])
        made = [op for op in self.loop.body if op in wanted]  # the product itself is the last op
        # All ops must be arithmetic, or loads that tensor descriptors can execute.
        blocks = (is_described(op) if isinstance(op, Load) else isinstance(op, (Spread, Compute, Dot)) for op in made)
        return made if all(blocks) else []

    def _copied(self, ops: list[Op], index: Dim, past_end: bool = False) -> dict[Op, Op]:
        """Copies ops, and replaces the loop's index by `index` in the copies."""

        def moved(op: Op) -> Op:
            if not isinstance(op, Load):
                return replace(op)
            here = {self.axis.symbol: index}
            places, guards = (tuple(d.substitute(here) for d in ds) for ds in (op.index, op.guards))
            if past_end and places != op.index:  # `index` can be past the end of the axis
                guards += (self.axis.extent - 1 - index,)
            return replace(op, index=places, guards=guards)

        return rewritten(ops, moved)

    def _rotated(self, product: Op, carry: Carry, following: dict[Op, Op]) -> Loop:
        """Returns the pipelined loop: each iteration ends with the first product of the next iteration."""
        # An iteration keeps the ops that do not make its first product, which has moved to the iteration before. An
        # operand of the product also stays if another op that stays uses the operand.
        wanted = [op for op in self.loop.body if op not in following] + [n for _, n in self.loop.carries]
        rest = {*postorder(wanted, lambda op: () if op is product else children(op))} - {product}
        ops = [product, *(op for op in self.loop.body if op in rest)]
        made = rewritten(ops, lambda op: carry if op is product else replace(op))
        body = _in_triton_order([new for new in made.values() if new is not carry])
        carries = (*((c, made[n]) for c, n in self.loop.carries), (carry, following[product]))
        return replace(self.loop, carries=carries, body=(*body, *following.values()))


def _in_triton_order(ops: Sequence[Op]) -> list[Op]:
    """Sorts ops: loads come as late as possible, casts come directly after their operands."""
    out: dict[Op, None] = {}

    def put(op: Op) -> None:
        for o in children(op):
            if isinstance(o, Load) and o in ops and o not in out:  # Triton waits for a load where the load is written
                put(o)
        out[op] = None
        # No wait for a load comes between an operand and its cast, because the result of a cast to a narrower dtype
        # takes fewer registers during the wait.
        for o in ops:
            if isinstance(o, Compute) and o.op == "cast" and op in o.args:
                put(o)

    for op in sorted(ops, key=lambda op: isinstance(op, Load)):  # loads that nothing here uses last
        if op not in out:
            put(op)
    return list(out)
