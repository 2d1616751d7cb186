"""Checks a plan: kernels in an order that their buffers allow, ops after their operands, axes
and dtypes that follow from them, reductions over all that is not parallel. Run after each pass over it."""

from __future__ import annotations

from minitri.kernel.ir import Compute, Dot, Kernel, Load, Op, Plan, Reduce, Scalar, Scan, Spread, Store, op_operands
from minitri.ops import OPERATORS
from minitri.types import DType, bool_, f32, f64, i64


def verify(plan: Plan) -> None:
    """Raises ValueError naming the first kernel and op that break a rule."""
    names = [b.name for b in (*plan.inputs, *plan.outputs, *plan.temporaries)]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"two buffers are called {twice}")
    ready = {b.name for b in plan.inputs}
    for kernel in plan.kernels:
        try:
            written = _verify_kernel(kernel, ready)
        except ValueError as error:
            raise ValueError(f"{kernel.name}: {error}") from None
        ready |= written
    missing = [b.name for b in plan.outputs if b.name not in ready]
    if missing:
        raise ValueError(f"nothing writes {missing[0]}")


def _verify_kernel(kernel: Kernel, ready: set[str]) -> set[str]:
    known: set[Op] = set()
    written: set[str] = set()
    names = {a.name for a in kernel.axes}
    for op in kernel.body:
        if any(o not in known for o in op_operands(op)):
            raise ValueError(f"{type(op).__name__} uses a value before it is made")
        if not set(op.axes) <= names:
            raise ValueError(f"{type(op).__name__} has the axes {op.axes}")
        _verify_op(op, kernel)
        verify_dtypes(op)
        if isinstance(op, (Load, Scalar)) and op.buffer.name not in ready:
            raise ValueError(f"{op.buffer.name} is read before it is written")
        if isinstance(op, Store):
            written.add(op.buffer.name)
        known.add(op)
    return written


def _verify_op(op: Op, kernel: Kernel) -> None:
    reduced = {a.name for a in kernel.reduced}
    match op:
        case Compute() if set(op.axes) != {a for x in op.args for a in x.axes}:
            raise ValueError(f"{op.op} has the axes {op.axes}")
        case Reduce() if not set(op.over) <= reduced or set(op.axes) != set(op.x.axes) - set(op.over):
            raise ValueError(f"reduce.{op.op} over {op.over} has the axes {op.axes}")
        case Scan() if op.along not in reduced or op.along not in op.x.axes:
            raise ValueError(f"scan along {op.along}")
        case Dot() if op.over not in reduced or op.over not in op.a.axes or op.over not in op.b.axes:
            raise ValueError(f"dot over {op.over}")
        case Load() | Store() if len(op.index) != len(op.buffer.shape):
            raise ValueError(f"an index of {len(op.index)} for {op.buffer.name}")
        case Store() if not {a.name for a in kernel.parallel} <= {s.name for d in op.index for s in d.symbols()}:
            raise ValueError(f"{op.buffer.name} is written more than once")


def verify_dtypes(op: Op) -> None:
    """Raises ValueError unless the dtype of an op follows from its operands, as the operator table says."""
    match op:
        case Load() | Scalar():
            _expect(op, op.buffer.dtype)
        case Store() if op.value.dtype != op.buffer.dtype:
            raise ValueError(f"{op.value.dtype} is stored in {op.buffer.name}, which holds {op.buffer.dtype}")
        case Compute(op="cast"):
            pass
        case Compute():
            row, operand = OPERATORS[op.op], op.args[-1].dtype
            wanted = [bool_ if row.operands == "where" else operand, *[operand] * (row.arity - 1)]
            if [a.dtype for a in op.args] != wanted:
                raise ValueError(f"{op.op} of {[a.dtype for a in op.args]}")
            _expect(op, row.result_dtype(operand))
        case Reduce(op="argmax" | "argmin"):
            _expect(op, i64)
        case Reduce() | Scan() | Spread():
            _expect(op, op.x.dtype)
        case Dot():
            _expect(op, f64 if op.a.dtype == f64 else f32)
        case _:
            pass


def _expect(op: Op, dtype: DType) -> None:
    if op.dtype != dtype:
        raise ValueError(f"{type(op).__name__} of {dtype} is said to be {op.dtype}")
