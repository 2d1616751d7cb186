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

In: a program. Out: the same program, with loops whose iterations do not begin with a wait. Two blocks of an array are
in shared memory, and one of them is in use. So Triton requests the next block only at the end of an iteration. A
product at the beginning of the next iteration waits for this block at once. After this pass the block arrives during
the arithmetic of an iteration.

This is software pipelining by one product (Lam, "Software pipelining: an effective scheduling technique for VLIW
machines", 1988), also called rotation scheduling (Chao, LaPaugh and Sha, 1993). It is not the loop rotation that makes
a do-while loop of a while loop.

The last iteration computes a product that nobody uses. Past the end of the array a tensor descriptor loads zeros, so
this product needs no mask. The pass therefore changes only loops over many blocks whose first product is loaded by
descriptors. Left out: loops that do not start at 0, loops whose last block may be short, and persistent programs.
"""

from collections.abc import Container, Sequence
from dataclasses import replace

from minitri.base.dims import Dim
from minitri.graph.ir import postorder
from minitri.kernels.ir import Carry, Compute, Dot, Load, Op, Spread, needed, op_operands, rewritten, with_operands
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
            place = _before_later_blocks(body, stmt)
            body[place:place] = rotated
        else:
            body.append(stmt)
    return program if body == list(program.body) else replace(program, body=tuple(body))


def _before_later_blocks(body: Sequence[Stmt], loop: Loop) -> int:
    """The position in `body` for a pipelined loop: before other loops over later blocks of the same axis.

    minitri/optimize/skip_blocks/skip.py has put such loops first. The first product must not come between two loops
    that carry the same sums. Otherwise NVIDIA's assembler makes the tensor cores wait for each instruction (C7515).
    """
    place = len(body)
    while place and _has_later_blocks(body[place - 1], loop):
        place -= 1
    return place


def _has_later_blocks(before: Stmt, loop: Loop) -> bool:
    """Whether `before` is a loop over later blocks that carries the same values as `loop`."""
    if not isinstance(before, Loop) or before.first is None or before.axes != loop.axes:
        return False
    return {c for c, _ in before.carries} == {c for c, _ in loop.carries}


class _Rotation:
    """The rewriting of one loop."""

    def __init__(self, program: Program, loop: Loop) -> None:
        self.loop, self.axis = loop, program.axis(loop.axes[0])

    def statements(self) -> list[Stmt] | None:
        """The ops of the first product and the pipelined loop; None if the loop cannot be pipelined."""
        product = self._product() if self._covers_whole_axis() else None
        if product is None:
            return None
        makes = self._made_of(product)
        first = self._copied(makes, lane_number(self.axis.name))
        following = self._copied(makes, self.axis.index + self.axis.block, past_end=True)
        if not all(may_be_described(op) for op in following.values() if isinstance(op, Load)):
            return None
        carry = Carry(dtype=product.dtype, axes=product.axes, spans=product.spans, initial=first[product])
        return [*first.values(), carry, self._rotated(product, carry, following)]

    def _covers_whole_axis(self) -> bool:
        """Whether the loop covers many complete blocks of one axis, from its beginning."""
        loop, axis, extent = self.loop, self.axis, self.axis.extent.constant
        if extent is None or extent < MIN_BLOCKS * axis.block or len(loop.axes) > 1 or loop.first is not None:
            return False
        return extent % axis.block == 0 or ends_whole(loop, axis)

    def _product(self) -> Dot | None:
        """The only product that does not depend on earlier iterations; None if there is none, or no other product."""
        carried = moving(self.loop.body, (c for c, _ in self.loop.carries))
        dots = [op for op in self.loop.body if isinstance(op, Dot)]
        free = [d for d in dots if d not in carried]
        return free[0] if len(free) == 1 < len(dots) and self._is_made_of_blocks(free[0]) else None

    def _made_of(self, product: Dot) -> list[Op]:
        """The ops of the loop that a product needs, in order."""
        wanted = needed(product)
        return [op for op in self.loop.body if op in wanted]

    def _is_made_of_blocks(self, product: Dot) -> bool:
        """Whether a product needs only arithmetic and loads that tensor descriptors can do."""
        made = self._made_of(product)
        return all(is_described(op) if isinstance(op, Load) else isinstance(op, (Spread, Compute, Dot)) for op in made)

    def _copied(self, ops: list[Op], index: Dim, past_end: bool = False) -> dict[Op, Op]:
        """Copies of ops with `index` in place of the loop's index.

        With `past_end` the index may lie past the end of the axis. Loads are then guarded.
        """

        def moved(op: Op) -> Op:
            if not isinstance(op, Load):
                return replace(op)
            places, guards = (
                tuple(d.substitute({self.axis.symbol: index}) for d in ds) for ds in (op.index, op.guards)
            )
            if past_end and places != op.index:
                guards += (self.axis.extent - 1 - index,)
            return replace(op, index=places, guards=guards)

        return rewritten(ops, moved)

    def _rotated(self, product: Dot, carry: Carry, following: dict[Op, Op]) -> Loop:
        """The pipelined loop: the rest of an iteration, then the first product of the next iteration."""
        made: dict[Op, Op] = {product: carry}
        rest = self._rest(product, following)
        for op in self.loop.body:
            if op in rest:
                made[op] = replace(with_operands(op, lambda o: made.get(o, o)))
        body = _in_triton_order([new for new in made.values() if new is not carry])
        carries = (*((c, made[n]) for c, n in self.loop.carries), (carry, following[product]))
        return replace(self.loop, carries=carries, body=(*body, *following.values()))

    def _rest(self, product: Dot, following: Container[Op]) -> set[Op]:
        """The ops of an iteration without its first product, but with the ops that both need."""
        wanted = [op for op in self.loop.body if op not in following] + [n for _, n in self.loop.carries]
        return {*postorder(wanted, lambda op: () if op is product else op_operands(op))} - {product}


def _in_triton_order(ops: Sequence[Op]) -> list[Op]:
    """The ops in an order that suits Triton. Loads come as late as possible, because Triton waits for a load where it
    is written.

    Casts come directly after their operand. Later they would come after such a wait, and the wide values would occupy
    registers until then.
    """
    out: dict[Op, None] = {}

    def put(op: Op) -> None:
        for o in op_operands(op):
            if isinstance(o, Load) and o in ops and o not in out:
                put(o)
        out[op] = None
        for o in ops:
            if isinstance(o, Compute) and o.op == "cast" and op in o.args:
                put(o)

    for op in sorted(ops, key=lambda op: isinstance(op, Load)):  # loads that nothing here uses last
        if op not in out:
            put(op)
    return list(out)
