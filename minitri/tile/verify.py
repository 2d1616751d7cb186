"""Checks a tile program: every op stands after its operands, every value's axes and dtype follow
from them, and each access is indexed by axes that exist. Run after lowering and after masking."""

from __future__ import annotations

from minitri.kernel.ir import Carry, Compute, Dot, Load, Op, Position, Reduce, Scan, Spread, Store, op_operands
from minitri.kernel.verify import verify_dtypes
from minitri.tile.ir import Loop, Program


def verify(program: Program, masked: bool) -> None:
    """Raises ValueError naming the first op that breaks a rule; `masked`: every access has its mask."""
    ops = list(program.ops())
    if len(set(ops)) < len(ops):
        raise ValueError("an op stands in two places")
    known: set[Op] = set()
    for stmt in program.body:
        if isinstance(stmt, Loop):
            inside = set(known)
            for op in stmt.body:
                _check(op, inside, program, masked)
            missing = [c for c, n in stmt.carries if c not in known or n not in inside]
            if missing:
                raise ValueError("a loop carries a value that does not exist")
        else:
            _check(stmt, known, program, masked)


def _check(op: Op, known: set[Op], program: Program, masked: bool) -> None:
    for operand in op_operands(op):
        if operand not in known:
            raise ValueError(f"{type(op).__name__} uses a value before it is made")
    if set(op.axes) != _axes(op) and not isinstance(op, (Spread, Carry, Store, Dot)):
        raise ValueError(f"{type(op).__name__} has axes {op.axes}, not {sorted(_axes(op))}")
    names = {a.name for a in program.axes}
    if not set(op.axes) <= names:
        raise ValueError(f"{type(op).__name__} has an axis that the program lacks")
    if masked and isinstance(op, (Load, Store)) and op.mask is None:
        raise ValueError(f"an access of {op.buffer.name} has no mask")
    verify_dtypes(op)
    known.add(op)


def _axes(op: Op) -> set[str]:
    match op:
        case Compute():
            return {a for x in op.args for a in x.axes}
        case Reduce():
            return set(op.x.axes) - set(op.over)
        case Scan():
            return set(op.x.axes)
        case Position() if op.expr.symbols() and any(s.name.endswith("_lane") for s in op.expr.symbols()):
            return set(op.axes)
        case _:
            return set(op.axes)
