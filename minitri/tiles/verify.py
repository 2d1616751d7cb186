"""Checks the rules of tile programs.

Every op comes after its operands. The axes and dtype of every value follow from its operands. Every axis in the index
of a load or store is an axis of the tile program. A looped axis is used only inside its loop. Each tile has a size that
Triton allows. The checks run after lowering, after masking, and on each program that was parsed from text.
"""

from math import prod

from minitri.base.dims import Dim, axis_names
from minitri.base.resource_limits import MAX_LANES
from minitri.base.symbolic_minmax import Extreme
from minitri.base.types import DType
from minitri.graph.typing_rules import require
from minitri.kernels.ir import Carry, Compute, Dot, Load, Op, Reduce, Store, index_expressions
from minitri.kernels.verify import located, verify_op, verify_order
from minitri.tiles.ir import Hints, Loop, Program, Programs, TileAxis

COLUMNS = 16  # the columns of one part, for the hint `in_parts`


def verify_all(programs: Programs, masked: bool) -> None:
    """Raises ValueError if a tile program breaks a rule. The message names the first tile program with a mistake, and
    the wrong op.
    """
    verify_order(programs.plan, [(p.name, p.ops()) for p in programs])
    for k, program in enumerate(programs):
        verify(program, masked)
        require(k > 0 or not program.early_start, f"{program.name}: only a kernel with another before it starts early")


def verify(program: Program, masked: bool) -> None:
    """Raises ValueError if a tile program breaks a rule. The message names the first op that breaks a rule. If `masked`
    is true, every load and store must have a mask.
    """
    ops = list(program.ops())
    require(len(set(ops)) == len(ops), "an op stands in two places")
    require(program.warps.bit_count() == 1, f"{program.name}: the number of warps, {program.warps}, is no power of two")
    for axis in program.axes:
        require(axis.role == "grid" or axis.lanes == axis.block, f"the block of {axis.name} is no power of two")
        held = axis.extent.constant is not None and axis.extent.constant <= axis.block
        require(held or axis.role != "whole", f"a block of {axis.block} does not hold all of {axis.name}")
    known: set[Op] = set()
    for stmt in program.body:
        if isinstance(stmt, Loop):
            _check_loop(stmt, known, program, masked)
        else:
            _check(stmt, known, program, masked, ())
    flat = program.persistent > 0 or not program.flattened
    require(flat, f"{program.name}: only a persistent kernel has loops to flatten")
    for about, hints in program.hints.items():
        with located(program.name, () if isinstance(about, Loop) else about.spans):
            _check_hints(program, about, hints)


HINTED: dict[str, tuple[type, ...]] = {
    "descriptor": (Load, Store), "evict_first": (Load,), "fast": (Compute,), "in_parts": (Reduce,),
    "unknown_start": (Carry,), "wait": (Loop,),
}  # fmt: skip


def _check_hints(program: Program, about: Op | Loop, hints: Hints) -> None:
    """Checks that all hints of an op or loop are allowed and change no value."""
    for name, kinds in HINTED.items():
        legal = not getattr(hints, name) or isinstance(about, kinds)
        require(legal, f"`{name}` is no hint for a {type(about).__name__}")
    if isinstance(about, (Load, Store)) and hints.descriptor:
        _check_descriptor(program, about, hints.descriptor)
    require(program.relaxed or not hints.fast, "only a relaxed kernel may have fast operators")
    if isinstance(about, Reduce) and hints.in_parts:
        require(bool(maximum_of_rows(program, about)), f"only a maximum of rows is made in parts, of {COLUMNS} columns")


def maximum_of_rows(program: Program, op: Reduce) -> tuple[TileAxis, ...]:
    """Returns the row axis and the column axis of `op` if `op` can have the hint `in_parts`, and otherwise an empty
    tuple. Only the maximum of each row of a tile can have this hint.
    """
    wide = tuple(a for a in program.axes if a.block > 1 and a.name in op.x.axes)
    rows = len(wide) == 2 and [a.name in op.over for a in wide] == [False, True]
    return wide if op.op == "max" and rows and wide[1].lanes % COLUMNS == 0 else ()


def _check_descriptor(program: Program, op: Load | Store, block: tuple[int, ...]) -> None:
    """Checks that a tensor descriptor can execute a load or store."""
    ends = {e - 1 - d for d, e in zip(op.index, op.buffer.shape)}
    tested = set(op.mask.conditions) if op.mask else set[Dim]()
    value = op if isinstance(op, Load) else op.value
    elements = prod(program.axis(a).lanes for a in value.axes)
    # The descriptor's block must have as many elements as the tile. A descriptor only tests the bounds of its array, so
    # the mask must test nothing else.
    fits = len(block) == len(op.index) and min(block) > 0 and prod(block) == elements and tested <= ends
    # A descriptor loads 0 outside of the array, so the `other` of a load with bounds checks must be 0.
    plain = isinstance(op, Store) or not op.picks and (op.other == 0 or not tested)
    require(fits and plain, f"a tensor descriptor of {list(block)} cannot do this access")


def _check_loop(loop: Loop, known: set[Op], program: Program, masked: bool) -> None:
    walked = {a.name for a in program.axes if a.role == "loop"}
    require(bool(loop.axes) and len({*loop.axes} & walked) == len(loop.axes), f"a loop over {loop.axes}")
    _check_bounds(loop, program)
    inside = set(known)
    for op in loop.body:
        _check(op, inside, program, masked, loop.axes)
    require(all(c in known and n in inside for c, n in loop.carries), "a loop carries a value that does not exist")
    for carry, following in loop.carries:
        with located(program.name, carry.spans):
            require(_type(carry) == _type(following), "a loop carries on a value of another type")
    require(len({c for c, _ in loop.carries}) == len(loop.carries), "a loop carries on a value twice")
    if loop.redo:
        with located(program.name, loop.redo.spans):
            legal = loop.redo in known and [_type(c) for c, _ in loop.carries] == [_type(loop.redo)]
            require(legal, "a loop that redoes a value carries on one value of its type")


def _type(op: Op) -> tuple[DType, set[str]]:
    return op.dtype, {*op.axes}


def _check_bounds(loop: Loop, program: Program) -> None:
    """Checks that loop bounds depend only on sizes, and on the first index of the block along each grid axis."""
    bounds = [d for d in (loop.first, loop.last) if d is not None]
    starts = {f"{a.name}_start" for a in program.grid}
    fixed = all(s.kind == "size" or s.name in starts for d in bounds for s in d.symbols())
    one = not bounds or len(loop.axes) == 1
    require(fixed and one, "the bounds of a loop depend on where the block of the grid starts alone")
    block = program.axis(loop.axes[0]).block
    require(loop.first is None or _is_multiple(loop.first, block), f"a loop starts at a multiple of {block}")


def _is_multiple(d: Dim, block: int) -> bool:
    if isinstance(d.atom, Extreme):
        return _is_multiple(d.atom.a, block) and _is_multiple(d.atom.b, block)
    return all(c % block == 0 for _, c in d.terms)


def _check(op: Op, known: set[Op], program: Program, masked: bool, loops: tuple[str, ...]) -> None:
    """Checks that an op obeys the rules of tile programs."""
    with located(program.name, op.spans):
        verify_op(op, {a.name for a in program.axes}, known)
        if isinstance(op, (Load, Store)):
            alone = isinstance(op, Load) or {a.name for a in program.grid} <= _indices(op)
            require(alone, f"several programs write the same place of {op.buffer.name}")
            require(op.mask is not None or not masked, f"an access of {op.buffer.name} has no mask")
        lanes = prod(program.axis(a).lanes for a in (*op.axes, *_indices(op) - {*op.axes}))
        require(lanes <= MAX_LANES, f"a tile of {lanes:,} lanes; Triton has {MAX_LANES:,}")
        if isinstance(op, Dot):
            _check_product(op, program)
        # Only ops inside of a loop (`loops` are the loop axes around the op) may use the index of its axis `r`. All ops
        # may use `r_lane`, the position of an element in its block.
        walked = {a.name for a in program.axes if a.role == "loop"} - {*loops}
        outside = walked & {n.removesuffix("_start") for n in axis_names(index_expressions(op))}
        require(not outside, f"{type(op).__name__} uses the index {min(outside, default='')} outside of its loop")


def _check_product(op: Dot, program: Program) -> None:
    """Checks the block sizes of a product."""
    own = {*op.tile, op.over}
    small = [a for a in own if program.axis(a).block < 16]  # `tl.dot` needs at least 16 indices
    more = [a for x in (op, op.a, op.b) for a in x.axes if a not in own and program.axis(a).block > 1]
    blocks = [program.axis(a).block for a in (*op.tile, op.over)]
    require(op.acc is not None and not small and not more, f"a product over blocks of {blocks}")


def _indices(op: Op) -> set[str]:
    """Returns the axes whose indices an op uses."""
    return {n for n in axis_names(index_expressions(op)) if not n.endswith(("_lane", "_start"))}
