"""Explains the compiler's decisions about a program, with their reasons, on one page of text.

The function `explain` takes a compilation, and returns the text of the page. For each kernel, the page shows the
schedule and the bytes that the kernel reads and writes. For each access to memory, the page has the proof that the
access stays in bounds. For each bounds check, the page says what would go wrong without the check. The page also has
the proof that each element of an output is written once (minitri/trust/memory_proofs.py). The page shows the bytes and
operations that the program needs. The page also shows a lower bound of the program's time on the target's chip
(minitri/hardware/roofline.py). The last part of the page is the ledger of fusion: each row says whether a node was
fused, and which rule decided. The ledger of fusion also says how many bytes of memory traffic fusion saves.

The page also lists what kernels assume about sizes and arrays, and how many bytes a thread reads at once:

    x, out: 16 bytes at a time
    y: 2 bytes at a time, rows lie 1554 bytes apart

A warp reads fastest if each thread reads 16 bytes at once, from an address that is a multiple of 16
(hardware/predicted_access_width.py). A launch checks whether each array begins at a multiple of 16 bytes. The strides
of an array determine whether its rows begin at multiples of 16 bytes. If the strides are arguments of the kernel, not
constants, the launch also checks which strides are multiples of 16. A launch also checks which sizes of the call are
multiples of 16. Launches whose checks give different answers run different compiled versions of the kernel.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from minitri.base.diagnostics import listed
from minitri.base.dims import Dim
from minitri.base.nodes import grouped
from minitri.base.text_tables import byte_size, table
from minitri.graph.text import format_number
from minitri.hardware.predicted_access_width import ALONE, Width, widths
from minitri.hardware.roofline import roofline
from minitri.hardware.targets import ALIGNMENT, INTERPRETER, Target
from minitri.kernels.ir import Decision, Load, Plan, Store
from minitri.kernels.lower_graph import label
from minitri.kernels.memory_traffic import Traffic, traffic
from minitri.optimize.pass_table import schedule_of
from minitri.pipeline import Compilation, Context
from minitri.tiles.ir import Program
from minitri.trust.memory_proofs import NEEDED, Verdict, prove


def explain(
    compiled: Compilation, measured: Mapping[str, float] | None = None, schedules: str = "", odd: Collection[str] = ()
) -> str:
    """Returns the page of text about a compilation, for the target and the known sizes of the compilation.

    `measured`: the measured seconds of each kernel, by the name of the kernel.
    `schedules`: a line that says whether a cost model or measurements chose the schedules. With "", the page has no
        such line.
    `odd`: the names of arrays that do not begin at a multiple of 16 bytes.
    """
    programs = compiled.value("tile.target")
    plan, context = programs.plan, compiled.context
    title = ", ".join([f"{context.entry} for {context.target}", *(f"{n} = {v}" for n, v in context.sizes.items())])
    rules = {k.name: schedule_of(k, context).rule for k in plan.kernels} if context.start is None else {}
    roof = roofline(compiled, measured)
    moved = {t.kernel: t for t in traffic(plan, context.sizes)} if roof is not None else {}
    lines = [title, sizes_given(context, plan, any(p.wide for p in programs)), *[schedules] * bool(schedules), ""]
    for program in programs:
        arrays = "" if context.target == INTERPRETER else arrays_given(program, context.target, odd)
        lines += [*_kernel(program, plan, rules.get(program.name, ""), moved.get(program.name), arrays), ""]
    return "\n".join([*lines, *([] if roof is None else [str(roof)]), *_parts(compiled), *_ledger(plan.ledger)])


# ---- kernels -------------------------------------------------------------------------------


def _kernel(program: Program, plan: Plan, rule: str, moved: Traffic | None, arrays: str) -> Iterator[str]:
    axes = ", ".join(f"{a.role} {a.name}: {a.extent} by {a.block}" for a in program.axes) or "one program"
    held = f" of {program.registers} registers a thread" if program.registers else ""
    moves = f", reads {byte_size(moved.read)}, writes {byte_size(moved.written)}" if moved else ""
    yield f"kernel {program.name}: {axes}; {program.warps} warps{held}{moves}"
    if rule:
        yield f"  schedule: {rule}"
    if arrays:
        yield f"  arrays: {arrays}"
    if program.descending and program.grid:
        *_, before, last = (None, *program.grid)
        beside = f", {program.group} of {before.name} side by side" if before and program.group > 1 else ""
        yield f"  order: {last.name} from its end on, where loops are longer{beside}"
    if program.returning:
        yield "  order: what is read a second time from its end on, where the cache still has it"
    if program.peeled_tests:
        yield f"  peeled: tiles that lie in {program.grid[-1].name} whole are computed apart, without its tests"
    yield from _left_out(program)
    shown: set[tuple[str, ...]] = set()
    verdicts = prove(program, plan.conditions)
    for op in dict.fromkeys(v.op for v in verdicts):
        own = [v for v in verdicts if v.op is op]
        lines = tuple(f"    {_claim(v):12} {v.why}" for v in own)
        if lines not in shown:  # a second load of the same row has the same proofs
            yield f"  {_access(op, own[0].statement)}"
            yield from lines
        shown.add(lines)


def _left_out(program: Program) -> Iterator[str]:
    """For each loop that skips blocks or bounds checks, yields lines that say why the result stays right."""
    for loop in (loop for loop in program.loops if loop.because):
        extent = program.axis(loop.axes[0]).extent
        first, last = (d if e is None else e for e, d in ((loop.first, 0), (loop.last, extent)))
        yield f"  loop {loop.axes[0]} from {first} to {last}"
        yield from (f"    {reason}" for reason in loop.because)


def _access(op: Load | Store, statement: str) -> str:
    head = statement.partition(" {")[0]
    if isinstance(op, Load) and op.mask is not None and op.mask.conditions:
        return f"{head}, else {format_number(op.other)}"
    return head


def _claim(v: Verdict) -> str:
    """Returns the text of a claim about a memory access, such as "in bounds"."""
    words = v.subject if v.claim == NEEDED else v.claim
    # capital letters say that a claim is not proven
    return words if v.ok else f"{words}: {v.status.upper()}"


# ---- the ledger ----------------------------------------------------------------------------


def _parts(compiled: Compilation) -> Iterator[str]:
    """Yields a table of the operations that the kernels compute in parts, with the number and the length of the
    parts.
    """
    if compiled.context.start is not None:
        return
    # splitting makes more grid programs, which a GPU can run at the same time
    splits = compiled.value("graph.simplified").splits
    rows = [
        (f"  {label(s.node)}: {s.node.type}", f"{s.parts} parts", f"of {_count(s.length)} elements") for s in splits
    ]
    if rows:
        yield f"in parts\n{table(rows, left=(0, 1, 2))}\n"


def _count(d: Dim) -> str:
    return str(d) if d.constant is None else f"{d.constant:,}"


def _ledger(ledger: Sequence[Decision]) -> Iterator[str]:
    for fused, title, verb in ((True, "fused", "saves"), (False, "apart", "costs")):
        rows = [(f"  {d.value}", _where(d), d.rule, f"{verb} {_bytes(d.bytes)}") for d in ledger if d.fused == fused]
        if rows:
            yield f"{title}\n{table(rows, left=(0, 1, 2))}\n"


def _where(d: Decision) -> str:
    return d.producer if d.producer == d.consumer else f"{d.producer} -> {d.consumer}"


def _bytes(count: Dim) -> str:
    return f"{count} B" if count.constant is None else byte_size(count.constant)


# ---- what kernels assume about sizes and arrays -------------------------------------------------


def sizes_given(context: Context, plan: Plan, wide: bool) -> str:
    """Returns a line that says which sizes are constants in the kernels, and how many bits memory offsets have.

    The argument `wide` says whether memory offsets of at least one kernel have 64 bits.
    """
    symbols = {s.name: None for b in plan.inputs for e in b.shape for s in e.symbols()}
    if not (names := [name for name in symbols if name not in context.sizes]):
        known = "these sizes and strides are literals in the kernels"
    elif context.sizes:
        known = f"{listed(names)} {'is an argument' if len(names) == 1 else 'are arguments'} of the kernels, the rest literals"
    else:
        known = "for any sizes: they are arguments of the kernels"
    strided = f"; not row-major: {', '.join(context.layouts)}" if context.layouts else ""
    return f"{known}; offsets of {64 if wide else 32} bits{strided}"


def arrays_given(program: Program, target: Target, odd: Collection[str] = ()) -> str:
    """Returns a phrase that says how many bytes of each array a thread reads or writes at once, and why the number is
    not larger.

    For an array with several accesses, the phrase describes the access that moves the fewest bytes at once. The
    argument `odd` contains the names of the arrays whose address is not a multiple of 16 bytes.
    """
    if any(a.tiles == 0 for a in program.grid):
        return "none is read or written, no program runs"
    program = program.without_descriptors() if odd else program
    moved = [(op.buffer, width) for op, width in widths(program, target.warp).items()]
    moved += [(b, Width(b.dtype.bytes, f"it begins at no multiple of {ALIGNMENT}")) for b, _ in moved if b.name in odd]
    found = grouped((_narrowest(own), b.name) for b, own in grouped(moved).items())
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in found.items())


def _narrowest(own: Sequence[Width]) -> str:
    """Returns a phrase about the array access that moves the fewest bytes at once."""
    least = min(own, key=lambda w: ALIGNMENT + 1 if w.bytes is None else w.bytes)
    if least.bytes is None:
        return "blocks through a tensor descriptor"
    if least.why == ALONE:
        return "one element at a time"
    given = list(dict.fromkeys(str(d) for w in own if w.bytes == least.bytes for d in w.given))
    calls = f" in calls where {ALIGNMENT} divides {listed(given)}" if given else ""
    return f"{least.bytes} bytes at a time{calls}{f', {least.why}' if least.why else ''}"
