"""Checks the rules that every plan of kernels must obey.

Each buffer is written before it is read. Each op comes after its operands. The dtype and the axes of each op follow
from its operands. A reduction runs only over axes that the kernel declares with the keyword `reduce`. The pipeline runs
the checks of this module after each pass over a plan, and on each plan that was parsed from text. `verify_op` has the
rules that kernels and tile programs have in common.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from minitri.base.diagnostics import BrokenRule
from minitri.base.dims import axis_names
from minitri.base.operators import POSITIONS, reduction, running
from minitri.base.spans import Span
from minitri.base.types import DType, bool_, f32, f64, i32, i64
from minitri.graph.typing_rules import require
from minitri.graph.verify import operator_dtype
from minitri.kernels import ir
from minitri.kernels.ir import Kernel, Op, Plan, children, needed, reduced_by


def verify(plan: Plan) -> None:
    """Raises ValueError if a plan breaks a rule. The message names the first kernel and op that break a rule."""
    names = [b.name for b in (*plan.inputs, *plan.outputs, *plan.temporaries)]
    if (twice := next((n for n in names if names.count(n) > 1), None)) is not None:
        raise ValueError(f"two buffers are called {twice}")
    verify_order(plan, [(k.name, k.body) for k in plan.kernels])
    for kernel in plan.kernels:
        known, axes = set[Op](), {a.name for a in kernel.axes}
        for op in kernel.body:
            with located(kernel.name, op.spans):
                verify_op(op, axes, known)
                _verify_in_kernel(op, kernel)


def verify_order(plan: Plan, bodies: Iterable[tuple[str, Iterable[Op]]]) -> None:
    """Checks that exactly one kernel writes each buffer, and that no kernel reads a buffer before it is written.
    Several stores of a kernel into the same buffer must write different slices of the buffer.

    `bodies` has a pair for each kernel, in launch order: the kernel's name and its ops. Raises ValueError if a check
    fails.
    """
    ready = {b.name for b in plan.inputs}
    for name, body in bodies:
        written: dict[str, list[ir.Store]] = {}
        for op in body:
            if isinstance(op, (ir.Load, ir.Scalar)) and op.buffer.name not in ready:
                raise BrokenRule(f"{name}: {op.buffer.name} is read before it is written", op.spans)
            if isinstance(op, ir.Store):
                stores = written[op.buffer.name] = [*written.get(op.buffer.name, ()), op]
                if op.buffer.name in ready or not ir.are_slices(stores):
                    raise BrokenRule(f"{name}: {op.buffer.name} is written twice", op.spans)
        ready |= written.keys()
    if missing := [b.name for b in plan.outputs if b.name not in ready]:
        raise ValueError(f"nothing writes {missing[0]}")


@contextmanager
def located(name: str, spans: tuple[Span, ...]) -> Iterator[None]:
    """Turns a ValueError inside the `with` block into a BrokenRule. The BrokenRule has the kernel's name and the spans
    (places in the source text).
    """
    try:
        yield
    except ValueError as error:
        raise BrokenRule(f"{name}: {error}", spans) from None


def verify_op(op: Op, axes: set[str], known: set[Op]) -> None:
    """Raises ValueError if the dtype or the axes of an op do not match the operands and the index of the op.

    The op belongs to a kernel or tile program with the axes `axes`. The dtypes of operators come from the operator
    table. The set `known` contains the ops that are already defined. The function adds `op` to `known`.
    """
    require(known.issuperset(children(op)), f"{type(op).__name__} uses a value before it is made")
    require({*op.axes} <= axes, f"{type(op).__name__} has an axis that its kernel lacks")
    known.add(op)
    _verify_index(op)
    match op:
        case ir.Load() | ir.Scalar():
            _expect(op, op.buffer.dtype)
        case ir.Store():
            fits = op.value.dtype == op.buffer.dtype
            require(fits, f"{op.value.dtype} is stored in {op.buffer.name}, which holds {op.buffer.dtype}")
        case ir.Compute():
            require(set(op.axes) == {a for x in op.args for a in x.axes}, f"{op.op} has the axes {op.axes}")
            if op.op != "cast":
                _expect(op, operator_dtype(op.op, [x.dtype for x in op.args]))
        case ir.Position():
            require(op.dtype in (i64, i32, f32), f"a position of {op.dtype}")  # a later pass may narrow an i64 position
        case ir.Inside():
            _expect(op, bool_)
        case ir.Reduce():
            _expect(op, i64 if op.op in POSITIONS else op.x.dtype)
            require(op.x.dtype.kind in reduction(op.op).accepts, f"{op.op} of {op.x.dtype}")
            require(op.index is None or op.index.dtype == i64, "positions are i64")
            require(set(op.over) <= set(op.x.axes) and len(set(op.over)) == len(op.over), f"reduction over {op.over}")
            require(set(op.axes) == set(op.x.axes) - set(op.over), f"a reduction over {op.over} has the axes {op.axes}")
            require(op.index is None or set(op.index.axes) <= set(op.x.axes), "positions of other axes")
            require(op.op not in POSITIONS or len(op.over) == 1, f"{op.op} over one axis")
        case ir.Count():
            require(op.dtype.is_float, f"a count of {op.dtype}")
        case ir.Old():
            _expect(op, op.x.dtype)
        case ir.Scan():
            _expect(op, op.x.dtype)
            require(op.dtype.kind in running(op.op).accepts, f"a running {op.op} of {op.dtype}")
            require(set(op.axes) == set(op.x.axes) and op.along in op.x.axes, f"scan along {op.along}")
        case ir.Spread(x=x) | ir.Carry(initial=x):
            _expect(op, x.dtype)
            require(set(x.axes) <= set(op.axes), f"{type(op).__name__} loses axes of its operand")
        case ir.Dot():
            _verify_dot(op)


def _verify_dot(op: ir.Dot) -> None:
    row, column = op.tile
    _expect(op, f64 if op.a.dtype == f64 else f32)
    require(op.a.dtype == op.b.dtype and op.a.dtype.is_float, "factors of different dtypes")
    require(op.acc is None or op.acc.dtype == op.dtype, "the accumulator has another dtype")
    require({row, op.over} <= set(op.a.axes) and column not in op.a.axes, "the first factor has other axes")
    require({column, op.over} <= set(op.b.axes) and row not in op.b.axes, "the second factor has other axes")
    require({*op.a.axes, *op.b.axes} - {op.over} <= set(op.axes), f"a product has the axes {op.axes}")
    require(op.over not in op.axes, f"a product keeps {op.over}")
    require(op.acc is None or set(op.acc.axes) == set(op.axes), "the accumulator has other axes")
    require(op.precision in ir.DOT_PRECISIONS, f"precision {op.precision}")


def _verify_index(op: Op) -> None:
    if isinstance(op, (ir.Load, ir.Store)):
        require(len(op.index) == len(op.buffer.shape), f"an index of {len(op.index)} for {op.buffer.name}")
    names = axis_names(ir.index_expressions(op))
    used = {n.removesuffix("_lane") for n in names if not n.endswith("_start")}  # a block start is one number
    used |= {a for _, v in getattr(op, "picks", ()) for a in v.axes}
    fits = used <= set(op.axes) or isinstance(op, ir.Store)
    require(fits, f"{type(op).__name__} has the axes {op.axes} and uses {sorted(used)}")


def _verify_in_kernel(op: Op, kernel: Kernel) -> None:
    reduced = {a.name for a in kernel.reduced}
    match op:
        case ir.Reduce() | ir.Dot():
            name = f"reduce.{op.op}" if isinstance(op, ir.Reduce) else "a product"
            require({*reduced_by(op)} <= reduced, f"{name} over {op.over}")
            maximum = op.rescale is None or _is_transport(op, op.rescale, "max", 1)
            require(maximum, f"{name} is not rescaled by what one running maximum over its axes was and is")
            shift = op.shift if isinstance(op, ir.Reduce) else None
            means = shift is None or not op.rescale and _is_transport(op, shift, "sum", 2)
            require(means, f"{name} is not shifted by what running means over its axes were and are")
        case ir.Count():
            legal = not op.axes and bool(op.over) and {*op.over} <= reduced and len({*op.over}) == len(op.over)
            require(legal, f"a count over {op.over}")
        case ir.Old():
            legal = isinstance(op.x, (ir.Reduce, ir.Count)) and op.axes == op.x.axes
            require(legal, "only a reduction or a count has an old value")
        case ir.Scan():
            require(op.along in reduced, f"scan along {op.along}")
        case ir.Store():
            once = {a.name for a in kernel.parallel} - kernel.held <= op.indexed_by
            require(once, f"{op.buffer.name} is written more than once")
            require(set(op.value.axes) <= op.indexed_by, f"{op.buffer.name} has one place for several values")


def _is_transport(op: ir.Reduce | ir.Dot, transport: Op, kind: str, most: int) -> bool:
    """Checks the op that corrects a partial sum in an online reduction."""
    olds = [o.x for o in needed(transport) if isinstance(o, ir.Old)]  # values before the current iteration
    over = reduced_by(op)
    # The correction uses 1 to `most` reductions with the operator `kind` and the reduced axes of `op`.
    followed = {o for o in olds if isinstance(o, ir.Reduce) and o.op == kind and o.over == over}
    # If `kind` is "sum", the correction also uses the number of elements before the current iteration.
    counts = {o for o in olds if isinstance(o, ir.Count) and o.over == over}
    is_sum = isinstance(op, ir.Dot) or op.op == "sum"
    fits = transport.dtype == op.dtype and set(transport.axes) <= set(op.axes)
    once = len(olds) == len(followed | counts) and 1 <= len(followed) <= most
    return is_sum and fits and once and len(counts) == (kind == "sum")


def _expect(op: Op, dtype: DType) -> None:
    require(op.dtype == dtype, f"{type(op).__name__} of {dtype} is said to be {op.dtype}")
