"""kernels → kernels: a reduction that depends on another runs in the same loop, and is corrected.

    m[i] = max over r of x[i, r]             in one loop over blocks of r:
    s[i] = sum over r of exp(x[i, r] - m)       m' = max(m, max of the block of x)
                                                s  = s * exp(m - m') + sum of exp(block - m')
                                                m  = m'

Run one after the other the two reductions read x twice. Run together, the sum so far was made
with an old maximum m and is needed with a newer one m'. A *transport* mends that: a factor
T(m → m') with F(x, m') = T * F(x, m) for every x, which the sum lets through. It is found from
the structure of F alone:

    F independent of m                       1
    exp(X - h(m))                            exp(h(m) - h(m')), if X is what m is the maximum of
    F * G, F / G (G independent of m)        T(F) * T(G), T(F)
    -F, cast F                               T(F)
    anything else                            refused, and the ledger says why

X must be what m is the maximum of: then no exponent is ever positive and nothing overflows on the
way. In the text `old %1` is m and `%1` is m': over all elements at once they are the same, and a
`rescale` is 1.

This is the online softmax of M. Milakov and N. Gimelshein, "Online normalizer calculation for
softmax" (2018), found from the program instead of being written for one. Left out: moments
(sums about a running mean: their correction is a sum, not a factor), and where(p, F, 0): of a row
of nothing but -inf the definition makes nan where p holds for some element, and 0 where for none,
which a factor cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from minitri.dims import Dim, product
from minitri.kernel import ir
from minitri.kernel.ir import Compute, Decision, Kernel, Load, Old, Op, Plan, Reduce, Spread
from minitri.types import ArrayType, DType


class Refused(Exception):
    """No transport; the message says which part of the expression has none."""


def online(plan: Plan, looped: Callable[[Kernel], Iterable[str]]) -> Plan:
    """`looped`: the axes of a kernel that will be walked in blocks. Where none is, nothing is to be won."""
    kernels: list[Kernel] = []
    decisions: list[Decision] = []
    for kernel in plan.kernels:
        axes = set(looped(kernel))
        rewriting = _Online(kernel, axes)
        kernels.append(rewriting.run() if axes else kernel)
        decisions += rewriting.decisions
    return replace(plan, kernels=tuple(kernels), ledger=(*plan.ledger, *decisions))


class _Online:
    def __init__(self, kernel: Kernel, looped: set[str]) -> None:
        self.kernel, self.looped = kernel, looped
        self.body: list[Op] = []
        self.new: dict[Op, Op] = {}
        self.decisions: list[Decision] = []
        self.behind: dict[Op, frozenset[Op]] = {}  # op → the looped reductions that it depends on

    def run(self) -> Kernel:
        for op in self.kernel.body:
            moved = ir.with_operands(op, self.new.__getitem__)
            if isinstance(moved, Reduce) and moved.op == "sum" and moved.x.dtype.is_float and self._over(moved):
                moved = self._with_rescale(moved)
            self._add(moved)
            self.new[op] = moved
        return replace(self.kernel, body=tuple(self.body))

    def _over(self, op: Reduce) -> bool:
        return bool(self.looped & set(op.over))

    def _add(self, op: Op) -> Op:
        behind = {y for o in ir.op_operands(op) for y in self.behind[o]}
        behind |= {o for o in ir.op_operands(op) if isinstance(o, Reduce) and self._over(o)}
        self.behind[op] = frozenset(behind)
        self.body.append(op)
        return op

    def _with_rescale(self, op: Reduce) -> Reduce:
        needs = self.behind[op.x] | ({op.x} if isinstance(op.x, Reduce) and self._over(op.x) else set())
        if not needs:
            return op
        y = max(needs, key=self.body.index)
        try:
            if not (isinstance(y, Reduce) and y.op == "max" and y.over == op.over):
                raise Refused(f"it follows a reduce.{getattr(y, 'op', '')}, and only a running maximum is safe")
            if y.rescale is not None or self.behind[y]:
                raise Refused("the maximum follows another reduction over the same axis")
            if len(needs) > 1:
                raise Refused("it follows two reductions, and would have to be rescaled for both")
            rescale = self._transport(op.x, y)
        except Refused as reason:
            self._decide(op, y, f"a loop of its own: {reason}", again=True)
            return op
        self._decide(op, y, "one loop, rescaled as the running maximum grows")
        return replace(op, rescale=rescale)

    def _decide(self, op: Reduce, y: Op, rule: str, again: bool = False) -> None:
        extents = {a.name: a.extent for a in self.kernel.axes}
        shape = tuple(extents[a] for a in op.axes)
        value = f"{op.op}: {ArrayType(op.dtype, shape)}"
        name = self.kernel.name
        self.decisions.append(Decision(value, name, name, True, rule, self._read_again(y), again, y.spans))

    def _read_again(self, y: Op) -> Dim:
        """Bytes that the reduction before this one reads, and this one would read again."""
        extents = {a.name: a.extent for a in self.kernel.axes}
        loads = [op for op in _needed(y) if isinstance(op, Load) and set(op.axes) & self.looped]
        read = {op.buffer: product([extents[a] for a in op.axes]) for op in loads}
        return sum((count * buffer.dtype.bytes for buffer, count in read.items()), Dim.of(0))

    # ---- transport -------------------------------------------------------------------

    def _transport(self, root: Op, y: Reduce) -> Op:
        """T as an op over `old y` and y."""
        factors = [self._exponential(h, y) for h in self._shifts(root, y)]
        product = factors[0]
        for f in factors[1:]:
            product = self._compute("multiply", product.dtype, (product, f))
        return product

    def _shifts(self, root: Op, y: Reduce) -> list[Op]:
        """For each exponential exp(X - h(y)) that root is a product of, its h."""
        shifts: list[Op] = []
        stack = [root]
        while stack:
            op = stack.pop()
            if not self._depends(op, y):
                continue
            match op:
                case Spread():
                    stack.append(op.x)
                case Compute(op="cast", args=(x,)) if x.dtype.is_float and op.dtype.is_float:
                    stack.append(x)
                case Compute(op="negative", args=(x,)):
                    stack.append(x)
                case Compute(op="multiply", args=(a, b)):
                    stack += [a, b]
                case Compute(op="divide", args=(a, b)) if not self._depends(b, y):
                    stack.append(a)
                case Compute(op="exp", args=(x,)):
                    shifts.append(self._shift(x, y))
                case _:
                    raise Refused(f"{_name(op)} of a running maximum has no transport")
        if not shifts:
            raise Refused("it depends on the maximum in no way that an exponential has")
        return shifts

    def _shift(self, exponent: Op, y: Reduce) -> Op:
        """h, where the exponent is X - h(y)."""
        while isinstance(exponent, Spread):
            exponent = exponent.x
        if not (isinstance(exponent, Compute) and exponent.op == "subtract"):
            raise Refused("the exponent is not a difference from the maximum")
        x, h = exponent.args
        if _bare(x) is not _bare(y.x):
            raise Refused("the exponent shifts something else than what the maximum is of")
        while isinstance(h, Spread):
            h = h.x
        if set(h.axes) & set(y.over):
            raise Refused("the shift is not the same for all elements")
        return h

    def _depends(self, op: Op, y: Op) -> bool:
        return op is y or y in self.behind[op]

    def _exponential(self, h: Op, y: Reduce) -> Op:
        """exp(h(old y) - h(y))."""
        old = self._add(Old(dtype=y.dtype, axes=y.axes, spans=y.spans, x=y))
        before = self._substituted(h, y, old)
        return self._compute("exp", h.dtype, (self._compute("subtract", h.dtype, (before, h)),))

    def _substituted(self, root: Op, y: Op, old: Op) -> Op:
        """The same expression of `old` instead of y."""
        made: dict[Op, Op] = {y: old}
        wanted = {op for op in _needed(root) if self._depends(op, y)}
        for op in list(self.body):
            if op in wanted and op not in made:
                made[op] = self._add(ir.with_operands(op, lambda o: made.get(o, o)))
        return made[root]

    def _compute(self, name: str, dtype: DType, args: tuple[Op, ...]) -> Op:
        axes = tuple(a.name for a in self.kernel.axes if any(a.name in x.axes for x in args))
        return self._add(Compute(dtype=dtype, axes=axes, spans=args[0].spans, op=name, args=args))


def _needed(root: Op) -> set[Op]:
    """An op and everything that it is made of."""
    stack, seen = [root], set[Op]()
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack += ir.op_operands(op)
    return seen


def _bare(op: Op) -> Op:
    while isinstance(op, Spread):
        op = op.x
    return op


def _name(op: Op) -> str:
    return getattr(op, "op", type(op).__name__.lower())
