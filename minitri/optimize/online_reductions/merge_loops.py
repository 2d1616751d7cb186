"""kernels → kernels: computes two reductions in one loop, although one depends on the other ("online softmax").

    m[i] = max over r of x[i, r]             in one loop over blocks of r:
    s[i] = sum over r of exp(x[i, r] - m)       m' = max(m, max of the block of x)
                                                s  = s * exp(m - m') + sum of exp(block - m')
                                                m  = m'

With one loop for the maximum of x and another loop for the sum of exp(x - m), x would be read twice. In a single loop,
each partial sum depends on an old maximum m. The result needs the newer maximum m' instead of m. A factor or summand
called *transport* corrects the partial sum (minitri/graph/partial_sum_correction.py). For each sum and product over a
looped axis, this pass looks for a transport (correction of partial sums). The pass adds ops that compute each transport
that it finds. In the text of a kernel, `old %1` is the old maximum m and `%1` is the new maximum m'. The numpy
evaluator of kernels reduces all elements at once, so no partial sum needs a correction. In the numpy evaluator, every
correction factor (`rescale`) is 1, and every correction summand (`shift`) is 0.

For example, the sum of (e / l) * v becomes (sum of e * v) / l, if l is another sum. A factor such as 1 / l, which is
the same for all summed elements, is first moved out of the sum.

A mean is a sum divided by the number of elements. Inside the loop, the mean is the partial sum divided by `count`, the
number of elements so far.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, TypeGuard

from minitri.base.dims import Dim, product
from minitri.base.types import ArrayType
from minitri.graph.partial_sum_correction import Mean, Reduced, Refused, Rescale, Shift, Terms, refuse_if, transport
from minitri.graph.text import format_number
from minitri.kernels import ir
from minitri.kernels.ir import Compute, Constant, Dot, Kernel, Load, Op, Plan, Reduce, Spread, Store
from minitri.kernels.lower_graph import OpBuilder

Reduction = Reduce | Dot


def online(plan: Plan, looped: Callable[[Kernel], Iterable[str]]) -> Plan:
    """Returns the plan in which kernels that loop over an axis use online reductions (reductions that share one loop).

    The function `looped` returns the axes that a kernel will loop over. A kernel without loops is not changed.
    """
    rewritings = [_Online(kernel, {*looped(kernel)}) for kernel in plan.kernels]
    kernels = tuple(r.run() if r.looped else r.kernel for r in rewritings)
    return replace(plan, kernels=kernels, ledger=(*plan.ledger, *(d for r in rewritings for d in r.decisions)))


def one_loop(kernel: Kernel, loop: str) -> str | None:
    """Returns the reason why a kernel needs more than one loop over the axis `loop`, or None if one loop is enough."""
    rewriting = _Online(kernel, {loop})
    made = rewriting.run()
    again = next((d.rule for d in rewriting.decisions if d.again), None)
    if again is not None:
        return again
    if len({op.tile[0] for op in made.body if isinstance(op, Dot)}) > 1:
        return "its products have different rows"
    if any(loop in op.indexed_by for op in made.body if isinstance(op, Store)):
        return "its results lie along the axis that is reduced"
    alone = [op for op in made.body if isinstance(op, Reduce) and loop in op.over and not (op.rescale or op.shift)]
    follows = any(rewriting.needs(op.x) for op in alone)
    return "a reduction that is no sum follows another one" if follows else None


def _is_at_least_1(c: Op) -> bool:
    """Checks whether a value is known to be nan or >= 1, as the denominator of a softmax is."""
    c = bare(c)
    # one term of the sum of exp(x - max of x) is exp(0) = 1
    return isinstance(c, Reduce) and c.op == "sum" and c.rescale is not None and _is(bare(c.x), "exp")


def _is_at_most_1(c: Op) -> bool:
    """Checks whether a value is `1 / s`, where `s` is at least 1, like the denominator of a softmax."""
    match bare(c):
        case Compute(op="reciprocal", args=(d,)):
            return _is_at_least_1(d)
        case Compute(op="divide", args=(one, d)):
            return is_one(one) and _is_at_least_1(d)
    return False


def is_one(op: Op) -> bool:
    op = bare(op)
    return isinstance(op, Constant) and op.value == 1


def _is(op: Op, name: str) -> bool:
    return isinstance(op, Compute) and op.op == name


class KernelTerms(Terms[Op]):
    """Lets minitri/graph/partial_sum_correction.py read the expressions of a kernel.

    The argument `over` contains the axes that are reduced.
    """

    def __init__(self, kernel: Kernel, over: tuple[str, ...]) -> None:
        self.over = over
        self.count = product([a.extent for a in kernel.axes if a.name in over])

    def look(self, e: Op) -> tuple[str, tuple[Op, ...]]:
        operands = tuple(map(bare, ir.children(e)))
        match e:
            case Reduce() if set(e.over) & set(self.over):
                return "", ()
            case Compute(op="cast", args=(x,)) if not x.dtype.is_computed_as(e.dtype):
                return "conversion", operands
            case Compute():
                return e.op, operands
        return type(e).__name__.lower(), operands

    def varies(self, e: Op) -> bool:
        return bool(set(e.axes) & set(self.over))


class _Online(OpBuilder):
    """Rewrites the reductions of one kernel to online reductions, as in online softmax."""

    def __init__(self, kernel: Kernel, looped: set[str]) -> None:
        # `looped`: the axes that the kernel will loop over
        self.kernel, self.looped = kernel, looped
        self.extents = {a.name: a.extent for a in kernel.axes}
        super().__init__(self.extents)
        self.new: dict[Op, Op] = {}
        self.decisions: list[ir.Decision] = []
        self.behind: dict[Op, frozenset[Reduction]] = {}  # op → the looped reductions that it depends on

    def run(self) -> Kernel:
        for op in self.kernel.body:
            moved = ir.with_children(op, self.new.__getitem__)
            self.new[op] = self._sum(moved) if self._is_sum(moved) else self.add(moved)
        return replace(self.kernel, body=ir.live(self.ops))

    def _over(self, op: Op) -> bool:
        return bool(self.looped & set(ir.reduced_by(op)))

    def _is_sum(self, op: Op) -> TypeGuard[Reduction]:
        """Checks whether an op reduces a looped axis by a sum of floats or by a matrix product."""
        is_sum = isinstance(op, Dot) or isinstance(op, Reduce) and op.op == "sum" and op.dtype.is_float
        return is_sum and self._over(op)

    def _sum(self, op: Reduction) -> Op:
        """Adds a sum to the kernel, with ops that correct its partial results."""
        factors: list[tuple[str, Op]] = []
        for side in ("a", "b") if isinstance(op, Dot) else ("x",):
            x, moved = self._without_factors(getattr(op, side), ir.reduced_by(op))
            op, factors = replace(op, **{side: x}), [*factors, *moved]
        result: Op = self.add(self._in_one_loop(op))
        # factors that moved out of the sum are applied to its result
        for name, factor in factors:
            result = self._compute(name, result, factor)
        return result

    def _without_factors(self, x: Op, over: tuple[str, ...]) -> tuple[Op, list[tuple[str, Op]]]:
        """Splits off divisors that can be applied after the sum, such as a softmax's denominator."""
        # The divisor of an exponential can move out of a cast too: exp(x - max) is at most 1, so its cast does not
        # overflow.
        match x:
            case Compute(op="cast", args=(y,)) if y.dtype.is_computed_as(x.dtype):
                inner, factors = self._without_factors(y, over)
                if inner is not y and _is(bare(inner), "exp"):
                    return self.add(ir.with_children(x, lambda _: inner)), factors
            case Compute(op="divide" | "multiply" as name, args=(y, c)) if not set(c.axes) & set(over):
                # the sum of e / l is the sum of e, divided by l, only if l is not 0
                if _is_at_least_1(c) if name == "divide" else _is_at_most_1(c):
                    inner, factors = self._without_factors(y, over)
                    return inner, [(name, c), *factors]
        return x, []

    def add(self, op: Any) -> Any:
        self.behind[op] = frozenset(y for o in ir.children(op) for y in self.needs(o))
        return super().add(op)

    def needs(self, op: Op) -> set[Reduction]:
        """Returns all reductions over looped axes among `op` and the ops on which `op` depends."""
        return {*self.behind[op], *([op] if isinstance(op, (Reduce, Dot)) and self._over(op) else [])}

    def _in_one_loop(self, op: Reduction) -> Reduction:
        """Tries to put a reduction into one loop with the reductions that it depends on."""
        terms = [x for x in ((op.a, op.b) if isinstance(op, Dot) else (op.x,)) if self.needs(x)]
        needs = sorted({y for x in terms for y in self.needs(x)}, key=self.ops.index)
        if not needs:
            return op
        try:
            found = self._transport(op, terms, needs)
        except Refused as reason:
            # no op can correct the partial sums, so a separate loop computes the sum
            self._decide(op, needs, f"a loop of its own: {reason}", again=True)
            return op
        if isinstance(found, Rescale):
            self._decide(op, needs, f"one loop with the max, times {_factor_text(found)}")
            return replace(op, rescale=self._rescale(found))
        assert isinstance(op, Reduce)
        square = found.means[0] == found.means[1]
        change = "(old mean - mean)^2" if square else "(old mean - mean) * (the same of the other mean)"
        self._decide(op, needs, f"one loop with the sum, plus old count * {change}")
        return self._shifted(op, found)

    def _transport(self, op: Reduction, terms: list[Op], needs: list[Reduction]) -> Rescale[Op] | Shift[Op]:
        followed: list[Reduced[Op]] = []
        for y in needs:
            if isinstance(y, Dot):
                raise Refused("it follows a product")
            refuse_if(y.over != ir.reduced_by(op), f"it follows a reduce.{y.op} over other axes")
            if self.behind[y]:
                raise Refused(f"the {y.op} that it follows follows another reduction over the same axes")
            followed.append(Reduced(y, y.op, bare(y.x)))
        refuse_if(len(terms) > 1, "both factors of the product follow a reduction")
        found = transport(KernelTerms(self.kernel, ir.reduced_by(op)), bare(terms[0]), followed)
        if isinstance(found, Shift) and isinstance(op, Dot):
            raise Refused("a product about a running mean has no transport")
        return found

    def _decide(self, op: Reduction, needs: Iterable[Reduction], rule: str, again: bool = False) -> None:
        shape = tuple(self.extents[a] for a in op.axes)
        value = f"{op.op if isinstance(op, Reduce) else 'contract'}: {ArrayType(op.dtype, shape)}"
        name = self.kernel.name
        spans = tuple(dict.fromkeys(s for y in needs for s in y.spans))
        self.decisions.append(ir.Decision(value, name, name, True, rule, self._read_again(needs), again, spans))

    def _read_again(self, needs: Iterable[Reduction]) -> Dim:
        """Returns how many bytes the kernel would load a second time if a second loop were necessary."""
        # a second loop is necessary if a reduction must wait for the results of the reductions in `needs`
        ops = {op for y in needs for op in ir.needed(y)}
        loads = [op for op in ops if isinstance(op, Load) and set(op.axes) & self.looped]
        read = {op.buffer: product([self.extents[a] for a in op.axes]) for op in loads}
        return sum((count * buffer.dtype.bytes for buffer, count in read.items()), Dim.of(0))

    # ---- transports as ops -----------------------------------------------------------

    def _rescale(self, found: Rescale[Op]) -> Op:
        """Makes the factor that corrects a partial sum when the running maximum changes."""
        y, old = found.y.y, self._old(found.y.y)

        # if the maximum grows from `old y` to y, the sum of exp(x - h(y)) is multiplied by exp(h(old y) - h(y))
        def factor(h: Op) -> Op:
            return self._compute("exp", self._compute("subtract", self._substituted(h, {y: old}), h))

        # `found.shifts` has h(y) for each exponential in a term of the sum; their factors are multiplied
        return reduce(lambda a, b: self._compute("multiply", a, b), [factor(h) for h in found.shifts])

    def _shifted(self, op: Reduce, found: Shift[Op]) -> Reduce:
        """Rewrites a sum such as `sum((x - mean(x)) * (y - mean(y)))` for a loop with running means."""
        count = self.once(ir.Count(dtype=op.dtype, axes=(), spans=op.spans, over=op.over))
        before = self._old(count)
        running: dict[Op, Op] = {}
        moved: dict[Mean[Op], Op] = {}
        for m in dict.fromkeys(found.means):
            # the running mean replaces the mean of all elements
            running[m.mean] = self._compute("divide", m.y.y, count)
            old = self._compute("divide", self._old(m.y.y), before)
            moved[m] = self._compute("subtract", old, running[m.mean])
        first, second = (moved[m] for m in found.means)
        # If a block changes the two means from a, b to a', b', the partial sum over the first n elements grows by n *
        # (a - a') * (b - b').
        shift = self._compute("multiply", self._compute("multiply", first, second), before)
        return replace(op, x=self._substituted(op.x, running), shift=shift)

    def _old(self, y: Op) -> Op:
        return self.once(ir.Old(dtype=y.dtype, axes=y.axes, spans=y.spans, x=y))

    def _substituted(self, root: Op, new: Mapping[Op, Op]) -> Op:
        """Returns a copy of an expression in which some ops are replaced."""
        made: dict[Op, Op] = dict(new)
        wanted = ir.needed(root)
        for op in list(self.ops):
            if op in wanted and op not in made and any(o in made for o in ir.children(op)):
                # `once` returns the existing op if the kernel already contains an equal op
                made[op] = self.once(ir.with_children(op, lambda o: made.get(o, o)))
        return made.get(root, root)

    def _compute(self, name: str, *args: Op) -> Op:
        """Returns an elementwise op. The op is added to the kernel unless the kernel has an equal op."""
        return self.once(self.computed(name, *args))


def _factor_text(found: Rescale[Op]) -> str:
    """Formats the factor that corrects a partial sum as text, for example "exp(old max - max)"."""
    shifts = [_expression_text(h, found.y.y) for h in found.shifts]
    return " * ".join("exp(old max - max)" if h == "max" else f"exp(old h - h), h = {h}" for h in shifts)


def _expression_text(h: Op, y: Op, depth: int = 4) -> str:
    match bare(h):
        case Constant() as c:
            return format_number(c.value)
        case op if op is y:
            return "max"
        case Compute() as op if depth:
            return f"{op.op}({', '.join(_expression_text(a, y, depth - 1) for a in op.args)})"
    return "..."


def bare(op: Op) -> Op:
    """Returns the operand of a broadcast, or the op itself if it is not a broadcast."""
    while isinstance(op, Spread):
        op = op.x
    return op
