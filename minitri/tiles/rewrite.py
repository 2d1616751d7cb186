"""Rewrites the ops of a tile program.

    retyped(program, {%2: f16})        %2: f32[i] = add %0, %1      becomes     %2: f16[i] = add %0, %1

The functions `exchange`, `retyped` and `rebuilt` take a tile program. Each function returns a new tile program. In the
new tile program, all users of a replaced op use the new op. The given tile program is not modified.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from minitri.base.nodes import grouped
from minitri.base.types import DType
from minitri.kernels.ir import Op, children, with_children
from minitri.tiles.ir import Loop, Program

Users = Mapping[Op, list[Op]]


def carried(program: Program) -> set[Op]:
    """Returns the values that loops pass to their next iterations."""
    return {following for loop in program.loops for _, following in loop.carries}


def users(program: Program) -> Users:
    """Returns, for each op, the ops that have this op as an operand."""
    return grouped((o, op) for op in program.ops() for o in children(op))


def connected(op: Op, users: Users) -> list[Op]:
    """Returns the operands of `op`, the users of `op`, and the operands of the users."""
    return [*children(op), *users[op], *(o for u in users[op] for o in children(u))]


def largest_subset(ops: Iterable[Op], users: Users, keeps: Callable[[Op, set[Op]], bool]) -> set[Op]:
    """Returns the largest subset of `ops` in which each op meets the condition `keeps(op, subset)`.

    `keeps` may look only at an op and at the ops that `connected` returns for it.
    """
    kept = {*ops}
    todo = [*kept]
    while todo:
        op = todo.pop()
        if op in kept and not keeps(op, kept):
            kept.remove(op)
            todo += connected(op, users)
    return kept


def exchange(program: Program, old: Op, new: Op) -> Program:
    """Returns the program with the op `new` in place of `old`. Ops that used `old` as an operand use `new`."""
    return rebuilt(program, lambda op: new if op is old else op)


def retyped(program: Program, dtypes: Mapping[Op, DType]) -> Program:
    """Changes the dtypes of ops, and returns the new program. The dict `dtypes` has the new dtype of each changed op.
    If `dtypes` is empty, returns the program unchanged.
    """
    return rebuilt(program, lambda op: replace(op, dtype=dtypes[op]) if op in dtypes else op) if dtypes else program


def rebuilt(program: Program, change: Callable[[Op], Op]) -> Program:
    """Returns the program with `change(op)` in place of each op. The operands and hints of the new program refer to the
    new ops.
    """
    made: dict[Any, Any] = {}

    def moved(op: Op) -> Op:
        made[op] = with_children(change(op), lambda o: made.get(o, o))
        return made[op]

    for stmt in program.body:
        if isinstance(stmt, Loop):
            inside = tuple(moved(op) for op in stmt.body)
            made[stmt] = replace(stmt, carries=tuple((made[c], made[n]) for c, n in stmt.carries), body=inside)
            made[stmt] = replace(made[stmt], redo=stmt.redo and made[stmt.redo])
        else:
            moved(stmt)
    hints = {made[x]: hints for x, hints in program.hints.items()}
    return replace(program, body=tuple(made[stmt] for stmt in program.body), hints=hints)
