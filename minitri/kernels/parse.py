"""Parses the text of kernels: the inverse of minitri/kernels/text.py.

The function `parse_plan` takes a text that `format_plan` wrote. A user may have edited the text. The function
`parse_plan` returns a `Plan`, whose spans are places in the parsed text. The parser checks the names, attributes and
numbers of each single line. Later, the verifier (minitri/kernels/verify.py) checks what depends on several lines, such
as the dtypes of operands. The class `Body` parses the lines of both kernels and tile programs, because both consist of
the same kinds of lines.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from minitri.base.diagnostics import suggest
from minitri.base.dims import Dim, Symbol, axis as axis_dim
from minitri.base.operators import POSITIONS
from minitri.base.spans import Source
from minitri.base.types import f64
from minitri.graph.ir import contiguous
from minitri.graph.text import join, read_condition, read_input_type
from minitri.kernels.ir import DOT_PRECISIONS, Axis, Buffer, Decision, Dot, Kernel, Mask, Op, Plan, Store
from minitri.kernels.text import AXIS, LINES, TABLE, usual_tile
from minitri.text_io.read_expressions import Names, read_dtype, read_identifier
from minitri.text_io.stage_parser import Line, Mistake, Node, Param, expect, read, reading
from minitri.text_io.templates import LineReader

_LEDGER = re.compile(r"(fused|apart|again) +(.+?)  (\w+)(?: -> (\w+))?: (.+) \((saves|costs) (.+) bytes\)")


def parse_plan(text: str, name: str = "<kernels>") -> Plan:
    """Returns the plan of kernels that a text describes. If the text is not valid, raises CompileError MT05xx, which
    shows the place of the mistake.
    """
    source = Source(name, text)
    with reading(source):
        head, *blocks, ledger = read(source, "kernels").parts
        plan, names = read_head(head, source)
        taken: set[str] = set()
        kernels = tuple(_kernel(block, plan, names, source, taken) for block in blocks)
        return replace(plan, kernels=kernels, ledger=tuple(_decision(e, names) for e in ledger))


def read_head(head: Node, source: Source) -> tuple[Plan, Names]:
    """Parses the head of a text: its inputs, outputs, conditions and temporaries. Returns two values: a plan without
    kernels, and the names of the sizes.
    """
    name, params, results, *lines = head.parts
    made, requires = ([x for x in lines if isinstance(x, Param) == wanted] for wanted in (True, False))
    names, taken = Names(), list[str]()
    for p in (*params, *results, *made):
        taken.append(read_identifier(p.name, taken))
    inputs = tuple(_input(p, names) for p in params)
    conditions = tuple(read_condition(r, names, source) for r in requires)
    outputs = tuple(read_buffer(p, "output", names) for p in results)
    temporaries = tuple(read_buffer(p, "temporary", names) for p in made)
    return Plan(read_identifier(name), inputs, outputs, temporaries, (), (), conditions), names


def _input(p: Param, names: Names) -> Buffer:
    dtype, shape, scalar = read_input_type(p, names)
    for k, e in enumerate(p.strides or ()):
        if e.name == (name := f"{p.name.name}.stride{k}"):  # each call gives this stride
            names.sizes[name] = Dim({(Symbol(name),): 1})
    return Buffer(p.name.name, dtype, shape, _strides(p, shape, names), "scalar" if scalar else "input")


def _strides(p: Param, shape: tuple[Dim, ...], names: Names) -> tuple[Dim, ...]:
    if p.strides is None:
        return contiguous(shape)
    expect(len(p.strides) == len(shape), p, f"`{p.name.name}` has {len(shape)} axes and {len(p.strides)} strides")
    return names.of_sizes.dims(p.strides)


def read_buffer(p: Param, role: str, names: Names) -> Buffer:
    dtype, shape = read_dtype(p.type), names.shape(p.dims or ())
    if (p.dims is None) != (role == "scalar") or (role == "scalar" and dtype != f64):
        raise Mistake(p.type, "a scalar is an f64 without brackets, an array is written as in f32[M, N]")
    return Buffer(p.name.name, dtype, shape, _strides(p, shape, names), role)


Buffers = dict[tuple[str, int], Buffer]  # by name and rank: a kernel may use an array with merged or divided axes


def read_buffers(params: Iterable[Param], plan: Plan, names: Names) -> Buffers:
    """Parses the buffers of a kernel or a tile program. Returns a dict from the name and rank (number of dimensions) of
    each buffer to the buffer. Each buffer of a kernel must have the same name, dtype and role as an array of the plan
    (the list of all kernels). Neighbouring axes of the buffer may be merged into one axis, and an axis may be divided
    into two.
    """
    whole = {b.name: b for b in (*plan.inputs, *plan.outputs, *plan.temporaries)}
    found: Buffers = {}
    for p in params:
        name, rank = read_identifier(p.name), len(p.dims or ())
        expect((name, rank) not in found, p.name, f"`{name}` is there already with as many axes")
        if name not in whole:
            raise Mistake(p.name, f"the plan has no array `{name}`", suggest(name, whole))
        b, seen = whole[name], read_buffer(p, p.role, names)
        expect((b.dtype, b.role) == (seen.dtype, seen.role), p, f"in the plan, `{name}` is an {b.role} of {b.dtype}")
        fits = 0 in b.shape and 0 in seen.shape or _merged_axes(b) == _merged_axes(seen)
        expect(fits, p, f"this is not how `{name}` lies in memory", "its axes may be merged or divided, no more")
        found[name, rank] = seen
    return found


def _merged_axes(buffer: Buffer) -> list[tuple[Dim, Dim]]:
    """Merges axes that are contiguous in memory, and returns the sizes and strides."""
    found = [axis for axis in zip(buffer.shape, buffer.strides) if axis[0] != 1]
    # `x: f32[4, 6, 8] {strides = [64, 8, 1]}` gets an axis of 4 indices with stride 64, and one of 48 with stride 1
    while pair := next(((a, b) for a, b in permutations(found, 2) if a[1] == b[0] * b[1]), None):
        for axis in pair:
            found.remove(axis)
        found.append((pair[0][0] * pair[1][0], pair[1][1]))
    return sorted(found, key=str)


def _kernel(block: Node, plan: Plan, names: Names, source: Source, taken: set[str]) -> Kernel:
    name, params, places, options, *lines = block.parts
    kernel, axes = read_kernel_name(name, taken), list[Axis]()
    for place in places:
        reduced, axis, extent = place.parts
        axes.append(Axis(*read_axis(axis, extent, names, axes), "reduced" if reduced else "parallel"))
    buffers = read_buffers(params, plan, names)
    hints = read_hints(options, {"relaxed": None})
    body = Body(source, names, [a.name for a in axes], buffers, "kernels")
    ops = tuple(map(body.line, lines))
    return Kernel(kernel, tuple(axes), tuple(buffers.values()), ops, "relaxed" in hints)


def read_kernel_name(e: Node, taken: set[str]) -> str:
    """Parses the name of a kernel, and adds it to the names in `taken`. Only the names k0, k1, … are allowed, because
    the kernel's name becomes a part of the generated source code.
    """
    if not re.fullmatch(r"k(0|[1-9][0-9]{0,3})", e.name) or e.name in taken:
        raise Mistake(e, "kernels are called k0, k1, …, each once")
    taken.add(e.name)
    return e.name


def read_axis(e: Node, extent: Node, names: Names, before: Iterable[Axis]) -> tuple[str, Dim]:
    """Parses the name and the extent of an axis. The name must differ from the names of the axes that were parsed
    earlier (`before`).
    """
    expect(e.name not in (a.name for a in before), e, f"there are two axes `{e.name[:40]}`")
    if not AXIS.fullmatch(e.name) or e.name.endswith(("_lane", "_start")):
        help = "names of axes are i j k l h g f e, and r s t u v w for those that are reduced"
        raise Mistake(e, f"an axis cannot be called `{e.name[:40]}`", help)
    return e.name, names.shape([extent])[0]


def read_hints(hints: Iterable[tuple[Node, Node | None]], known: Mapping[str, Sequence[int] | None]) -> dict[str, Any]:
    """Parses the compile options of a kernel or a tile program. Returns a dict from the name of each option to its
    value.

    The argument `known` maps each allowed option to the numbers that the option can have. An option without a number,
    such as `relaxed`, has the value None in `known`, and the value True in the result.
    """
    found: dict[str, int] = {}
    for word, number in hints:
        if word.name not in known or word.name in found:
            raise Mistake(word, f"`{word.name[:40]}` cannot stand here", suggest(word.name, known), "MT0501")
        choices = known[word.name]
        if (number is None) != (choices is None):
            raise Mistake(number or word, f"`{word.name}` is written with{'out' if choices is None else ''} a number")
        value = number.parts[0] if number else True
        if choices is not None and value not in choices:
            known_range = isinstance(choices, range) and f"a number from {choices[0]} to {choices[-1]}"
            raise Mistake(number or word, f"`{word.name}` is {known_range or f'one of {join(choices)}'}")
        found[word.name] = value
    return found


def _decision(e: Node, names: Names) -> Decision:
    match = _LEDGER.fullmatch(e.parts[0])
    if match is None:
        raise Mistake(e, "a line of the ledger is `fused  VALUE  k0: RULE (saves N bytes)`", code="MT0501")
    verdict, value, producer, consumer, rule, _, bytes = match.groups()
    with reading(source := Source("<ledger>", bytes)):
        size = names.of_sizes.dim(read(source, "sum"))
    return Decision(value, producer, consumer or producer, verdict != "apart", rule, size, verdict == "again")


class Body(LineReader[Op]):
    """Parses the lines of a kernel or a tile program, in order. The stage `stage` decides which ops and fields are
    allowed.
    """

    templates, precisions = LINES, DOT_PRECISIONS

    def __init__(self, source: Source, names: Names, axes: Sequence[str], buffers: Buffers, stage: str) -> None:
        super().__init__(source)
        self.axes, self.buffers, self.stage = axes, buffers, stage
        self.known = {a: axis_dim(a) for a in axes}
        self.picks: dict[Symbol, Op] = {}  # the picked values in the current line
        self.names = Names(names.sizes, self.known, self._pick)

    def line(self, line: Line) -> Op:
        self.picks = {}
        axes: tuple[str, ...] = ()
        if line.result is not None and line.type is not None:
            names = self.read_result(line.result, line.type)
            axes = self._axes(names, "the type of a value names its axes, each once")
        cls, found = self.fields(line, self._absent(line.op.name))
        if cls is Store:
            self.dtype, axes = found["value"].dtype, found["value"].axes
        op = cls(dtype=self.dtype, axes=axes, spans=self.span(line), **self._op_fields(line, cls, found))
        if line.result is not None:
            self.values[line.result.name] = op
        return op

    def _absent(self, word: str) -> frozenset[str]:
        """Returns the fields that a line with the op `word` must not have at this stage."""
        absent = frozenset(TABLE["absent"][self.stage])
        # sums and products can have the field `rescale`, sums the field `shift`, argmax and argmin the field `index`
        absent |= {"rescale", "shift"} if word not in ("reduce.sum", "dot") else frozenset()
        return absent | ({"index"} if word.removeprefix("reduce.") not in POSITIONS else frozenset())

    def _op_fields(self, line: Line, cls: type[Op], found: dict[str, Any]) -> dict[str, Any]:
        """Converts the parsed fields of a line to the fields of its op."""
        expect(not self.picks or cls is not Store, line, "the place of a store depends on axes alone")
        if self.picks:
            found["picks"] = tuple(self.picks.items())
        if "element" in found:
            found["buffer"], found["index"] = found.pop("element")
            if self.stage == "tile.masked":
                found["mask"] = Mask(found.pop("tested", ()), found.pop("reasons", ()))
        if cls is Dot:
            found["tile"] = found.get("tile") or usual_tile(found["a"], found["b"], found["over"])
            expect(len(found["tile"] or ()) == 2, line, "this product needs its two axes", "write `tile = [i, j]`")
        return found

    def _pick(self, e: Node) -> Dim | None:
        op = self.values.get(e.name)
        if op is None:
            return None
        expect(op.dtype.is_integer, e, f"`{e.name}` is {op.dtype}: only integers can be in an index")
        # With four digits, terms sort in the same order as in kernels/demand.py.
        symbol = Symbol(f"p{int(e.name[1:]):04}", "value")
        self.picks[symbol] = op
        return Dim({(symbol,): 1})

    def _axes(self, names: Sequence[Node], rule: str) -> tuple[str, ...]:
        """Returns the names of axes, or raises a Mistake with the message `rule` if a name is unknown or repeated."""
        axes = tuple(e.name for e in names)
        for e in names:
            if e.name not in self.axes or axes.count(e.name) > 1:  # unknown or named twice
                raise Mistake(e, rule, suggest(e.name, self.axes))
        return axes

    def _buffer(self, e: Node, rank: int, *roles: str) -> Buffer:
        b = self.buffers.get((e.name, rank))
        if b is None or b.role not in roles:
            fitting = [n for (n, _), x in self.buffers.items() if x.role in roles]
            help = f"it has another number of axes than {rank}" if e.name in fitting else suggest(e.name, fitting)
            raise Mistake(e, f"there is no {' or '.join(roles)} `{e.name[:40]}` with {rank} axes here", help)
        return b

    # ---- kinds of fields ---------------------------------------------------------------

    def scalar(self, e: Node) -> Buffer:
        return self._buffer(e, 0, "scalar")

    def loaded(self, e: Node) -> tuple[Buffer, tuple[Dim, ...]]:
        return self._element(e, "input", "output", "temporary")

    def stored(self, e: Node) -> tuple[Buffer, tuple[Dim, ...]]:
        return self._element(e, "output", "temporary")

    def _element(self, e: Node, *roles: str) -> tuple[Buffer, tuple[Dim, ...]]:
        expect(e.kind == "element", e, "an element is written as in x[i, j]")
        name, index = e.parts
        return self._buffer(name, len(index), *roles), self.names.dims(index)

    def condition(self, e: Node) -> Dim:
        return self.names.condition(e)

    def axis(self, e: Node) -> str:
        if e.name not in self.axes:
            raise Mistake(e, "an axis is wanted here", suggest(e.name, self.axes))
        return e.name
