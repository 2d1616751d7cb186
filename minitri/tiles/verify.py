"""Checks the rules of tile programs.

Every op comes after its operands. The axes and dtype of every value follow from its operands. Each
index of an access uses axes of the program; a looped axis only inside its loop. The size of each
tile is one that Triton has. The checks run after lowering, after masking and on text that was read.
"""

from __future__ import annotations

from math import prod

from minitri.base.diagnostics import BrokenRule
from minitri.base.dims import Dim
from minitri.base.extremes import Largest, Smallest
from minitri.kernels.ir import Carry, Compute, Dot, Inside, Load, Op, Position, Reduce, Scan, Spread, Store, op_operands
from minitri.kernels.verify import verify_op, verify_order
from minitri.tiles.ir import Hints, Loop, Program, Programs, TileAxis

MAX_LANES = 2**20  # of one tile, in Triton
COLUMNS = 16  # of a part of a maximum


def verify_all(programs: Programs, masked: bool) -> None:
    """Raises ValueError naming the first program and op that break a rule."""
    verify_order(programs.plan, [(p.name, p.ops()) for p in programs])
    for k, program in enumerate(programs):
        verify(program, masked)
        if program.early_start and k == 0:
            raise ValueError(f"{program.name}: only a kernel with another before it starts early")


def verify(program: Program, masked: bool) -> None:
    """Raises ValueError naming the first op that breaks a rule; `masked`: every access has its mask."""
    ops = list(program.ops())
    if len(set(ops)) < len(ops):
        raise ValueError("an op stands in two places")
    for axis in program.axes:
        _check_axis(axis)
    known: set[Op] = set()
    for stmt in program.body:
        if isinstance(stmt, Loop):
            _check_loop(stmt, known, program, masked)
        else:
            _check(stmt, known, program, masked, ())
    if program.flattened and not program.persistent:
        raise ValueError(f"{program.name}: only a persistent kernel has loops to flatten")
    for about, hints in program.hints.items():
        _check_hints(program, about, hints)


HINTED: dict[str, tuple[type, ...]] = {
    "descriptor": (Load, Store), "evict_first": (Load,), "fast": (Compute,), "in_parts": (Reduce,),
    "unknown_start": (Carry,), "wait": (Loop,),
}  # fmt: skip


def _check_hints(program: Program, about: Op | Loop, hints: Hints) -> None:
    """A hint is about what it can be about, and changes no value."""
    spans = () if isinstance(about, Loop) else about.spans
    for name, kinds in HINTED.items():
        if getattr(hints, name) and not isinstance(about, kinds):
            raise BrokenRule(f"{program.name}: `{name}` is no hint for a {type(about).__name__}", spans)
    if isinstance(about, (Load, Store)) and hints.descriptor:
        _check_descriptor(program, about, hints.descriptor)
    if hints.fast and not program.relaxed:
        raise BrokenRule(f"{program.name}: only a relaxed kernel may have fast operators", spans)
    if isinstance(about, Reduce) and hints.in_parts and not _is_maximum_of_rows(program, about):
        raise BrokenRule(f"{program.name}: only a maximum of rows is made in parts, of {COLUMNS} columns", spans)


def _is_maximum_of_rows(program: Program, op: Reduce) -> bool:
    wide = [a for a in program.axes if a.block > 1 and a.name in op.x.axes]
    rows = len(wide) == 2 and [a for a in wide if a.name in op.over] == wide[1:]
    return op.op == "max" and rows and wide[1].lanes % COLUMNS == 0


def _check_descriptor(program: Program, op: Load | Store, block: tuple[int, ...]) -> None:
    """A descriptor has a block of the tile's size, and gives zeros past the ends of its array, and there alone."""
    ends = {e - 1 - d for d, e in zip(op.index, op.buffer.shape)}
    tested = set(op.mask.conditions) if op.mask else set[Dim]()
    value = op if isinstance(op, Load) else op.value
    fits = (
        len(block) == len(op.index)
        and min(block) > 0
        and prod(block) == prod(program.axis(a).lanes for a in value.axes)
    )
    if not fits or not tested <= ends or isinstance(op, Load) and (op.picks or op.other != 0 and tested):
        raise BrokenRule(f"{program.name}: a tensor descriptor of {list(block)} cannot do this access", op.spans)


def _check_axis(axis: TileAxis) -> None:
    if axis.role != "grid" and axis.lanes != axis.block:
        raise ValueError(f"the block of {axis.name} is no power of two")
    if axis.role == "whole" and (axis.extent.constant is None or axis.extent.constant > axis.block):
        raise ValueError(f"a block of {axis.block} does not hold all of {axis.name}")


def _check_loop(loop: Loop, known: set[Op], program: Program, masked: bool) -> None:
    walked = {a.name for a in program.axes if a.role == "loop"}
    if not loop.axes or len({*loop.axes} & walked) < len(loop.axes):
        raise ValueError(f"a loop over {loop.axes}")
    _check_bounds(loop, program)
    inside = set(known)
    for op in loop.body:
        _check(op, inside, program, masked, loop.axes)
    if any(c not in known or n not in inside for c, n in loop.carries):
        raise ValueError("a loop carries a value that does not exist")
    for carry, following in loop.carries:
        if carry.dtype != following.dtype or set(carry.axes) != set(following.axes):
            raise BrokenRule("a loop carries on a value of another type", carry.spans)
    if len({c for c, _ in loop.carries}) < len(loop.carries):
        raise ValueError("a loop carries on a value twice")


def _check_bounds(loop: Loop, program: Program) -> None:
    """They depend on where the block of the grid starts alone, and blocks start at multiples of their size."""
    bounds = [d for d in (loop.first, loop.last) if d is not None]
    starts = {f"{a.name}_start" for a in program.grid}
    if (
        bounds
        and len(loop.axes) > 1
        or any(s.kind != "size" and s.name not in starts for d in bounds for s in d.symbols())
    ):
        raise ValueError("the bounds of a loop depend on where the block of the grid starts alone")
    block = program.axis("".join(loop.axes[:1])).block
    if loop.first is not None and not _is_multiple(loop.first, block):
        raise ValueError(f"a loop starts at a multiple of {block}")


def _is_multiple(d: Dim, block: int) -> bool:
    if isinstance(d.atom, (Largest, Smallest)):
        return _is_multiple(d.atom.a, block) and _is_multiple(d.atom.b, block)
    return all(c % block == 0 for _, c in d.terms)


def _check(op: Op, known: set[Op], program: Program, masked: bool, loops: tuple[str, ...]) -> None:
    try:
        _check_op(op, known, program, masked)
        _check_places(op, program, loops)
        verify_op(op)
    except ValueError as error:
        raise BrokenRule(f"{program.name}: {error}", op.spans) from None
    known.add(op)


def _check_op(op: Op, known: set[Op], program: Program, masked: bool) -> None:
    for operand in op_operands(op):
        if operand not in known:
            raise ValueError(f"{type(op).__name__} uses a value before it is made")
    if set(op.axes) != _axes(op) and not isinstance(op, (Spread, Carry, Store, Dot)):
        raise ValueError(f"{type(op).__name__} has axes {op.axes}, not {sorted(_axes(op))}")
    if not set(op.axes) <= {a.name for a in program.axes}:
        raise ValueError(f"{type(op).__name__} has an axis that the program lacks")
    if isinstance(op, (Load, Store)) and len(op.index) != len(op.buffer.shape):
        raise ValueError(f"an index of {len(op.index)} for {op.buffer.name}")
    if isinstance(op, Store) and not {a.name for a in program.grid} <= _indices(op):
        raise ValueError(f"several programs write the same place of {op.buffer.name}")
    if masked and isinstance(op, (Load, Store)) and op.mask is None:
        raise ValueError(f"an access of {op.buffer.name} has no mask")
    lanes = prod(program.axis(a).lanes for a in (*op.axes, *_indices(op) - {*op.axes}))
    if lanes > MAX_LANES:
        raise ValueError(f"a tile of {lanes:,} lanes; Triton has {MAX_LANES:,}")
    if isinstance(op, Dot):
        _check_product(op, program)


def _check_product(op: Dot, program: Program) -> None:
    """`tl.dot` takes two axes of each operand, with blocks of at least 16."""
    own = {*op.tile, op.over}
    small = [a for a in own if program.axis(a).block < 16]
    more = [a for x in (op, op.a, op.b) for a in x.axes if a not in own and program.axis(a).block > 1]
    if op.acc is None or small or more:
        raise ValueError(f"a product over blocks of {[program.axis(a).block for a in (*op.tile, op.over)]}")


def _check_places(op: Op, program: Program, loops: tuple[str, ...]) -> None:
    """The index of a looped axis exists only inside its loop; positions in the block exist everywhere."""
    outside = {a.name for a in program.axes if a.role == "loop"} - {*loops}
    if used := sorted(outside & (_indices(op) | _starts(op))):
        raise ValueError(f"{type(op).__name__} uses the index {used[0]} outside of its loop")


def _indices(op: Op) -> set[str]:
    """The axes whose indices an op uses."""
    return {n for n in _symbols(op) if not n.endswith(("_lane", "_start"))}


def _starts(op: Op) -> set[str]:
    """The axes of whose blocks an op uses the first index."""
    return {n.removesuffix("_start") for n in _symbols(op) if n.endswith("_start")}


def _symbols(op: Op) -> set[str]:
    exprs: list[Dim] = []
    match op:
        case Load() | Store():
            exprs += [*op.index, *(op.mask.conditions if op.mask else ())]
            exprs += op.guards if isinstance(op, Load) else ()
        case Position():
            exprs.append(op.expr)
        case Inside():
            exprs += op.conditions
        case _:
            pass
    return {s.name for d in exprs for s in d.symbols() if s.kind == "axis"}


def _axes(op: Op) -> set[str]:
    match op:
        case Compute():
            return {a for x in op.args for a in x.axes}
        case Reduce():
            return set(op.x.axes) - set(op.over)
        case Scan():
            return set(op.x.axes)
        case _:
            return set(op.axes)
