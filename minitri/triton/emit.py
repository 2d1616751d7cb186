"""tile.target → Triton source.

The function `emit` takes a tile program. It returns an `EmittedKernel`: the text of one `@triton.jit` function, and a
description of its arguments. Each line of the function computes at most one operation of the tile program. Triton
records a line number for each machine instruction. The line number of a machine instruction shows to which operation of
the tile program the instruction belongs. `EmittedKernel.lines` has the line number of each operation.

    %2: f32[i, j] = subtract %0, %1        v2 = v0 - v1[:, None]

The emitter knows nothing except the tile program: neither the target nor the other kernels. Earlier passes have chosen
fusion, schedules, masks and hints. The emitter decides only how to write the program in Triton. For example, the
emitter writes the bounds check `776 - i >= 0` as `i < 777`. Triton recognises only the form `i < 777` when it
vectorises loads. The emitter writes Triton's own `//` and `%` where the ranges of the operands prove that no operand is
negative. If an operand is possibly negative, the emitter writes calls of `rt` functions instead of `//` and `%`
(triton/expressions.py). If a factor of a product does not have its axes in the order that `tl.dot` needs, `tl.trans`
transposes the factor. A condition that several loads or stores test is computed once, under one name.

No text from the user gets into the Triton source. The emitter chooses all names: v0, v1, … for values, p0… for buffers,
s0… for sizes, a0… for scalars, and i, j, r… for axes. The names of dtypes come from a table, and numbers are formatted
from their values. The host computes each expression that depends only on sizes, and passes the result to the kernel as
an integer.
"""

from contextlib import ExitStack
from dataclasses import field

from minitri.base.dims import Dim, axis_names
from minitri.base.nodes import Record
from minitri.base.operators import OPERATORS, reduction, running
from minitri.base.symbolic_minmax import smallest
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Carry, Constant, Load, Op, Picks, Store, children
from minitri.tiles.ir import Loop, Program, TileAxis
from minitri.triton import descriptors
from minitri.triton.descriptors import Descriptor
from minitri.triton.expressions import Expressions, Lines, constant, convert, number, operand, other_value
from minitri.triton.grid import Grid, count, widened


class EmittedKernel(Record):
    """The source of a Triton function, and a description of its arguments.

    The order of the arguments is: pointers, integer sizes, scalars, tensor descriptors. `program` is the tile program,
    which has the options that the kernel is compiled with.
    """

    name: str
    program: Program = field(compare=False)  # the ops of two compilations are never equal
    source: str
    pointers: tuple[Buffer, ...]
    sizes: tuple[Dim, ...]
    scalars: tuple[Buffer, ...]
    tiles: Dim  # how many grid programs run
    descriptors: tuple[Descriptor, ...]
    lines: tuple[tuple[int, Op], ...]  # (1-based line of `source`, op)


def emit(program: Program) -> EmittedKernel:
    return _Emitter(program).run()


class _Emitter(Expressions):
    def __init__(self, program: Program) -> None:
        super().__init__(program, Lines())
        self.program, self.add = program, self.lines.add
        self.axes = {a.name: a for a in program.axes}
        self.pointers = [b for b in program.buffers if b.role != "scalar"]
        self.scalars = [b for b in program.buffers if b.role == "scalar"]
        self.descriptors = descriptors.descriptors(program, self.pointers) if program.hints else {}
        self.initials = self._initials()
        self.used, self.needless = 0, frozenset[Dim]()

    def run(self) -> EmittedKernel:
        program, lines = self.program, self.lines
        if program.early_start:
            self.add("rt.wait_for_previous()")
        Grid(program, lines).write()
        self._peeled_branches(program.grid[-1]) if program.peeled_tests else self._statements()
        made = tuple(self.descriptors.values())
        names = [f"p{k}" for k in range(len(self.pointers))]
        names += [*lines.sizes.values(), *[f"a{k}: tl.float64" for k in range(len(self.scalars))]]
        names += [d.name for d in made]
        source = "\n".join([f"def {program.name}({', '.join(names)}):", *lines.texts]) + "\n"
        tiles, most = count(program), program.persistent
        return EmittedKernel(
            program.name, program, source, tuple(self.pointers), tuple(lines.sizes), tuple(self.scalars),
            smallest(tiles, Dim.of(most)) if most else tiles, made, tuple((line + 1, op) for line, op in lines.ops),
        )  # fmt: skip

    def _statements(self) -> None:
        for stmt in self.program.body:
            self._loop(stmt) if isinstance(stmt, Loop) else self._op(stmt)

    def _peeled_branches(self, axis: TileAxis) -> None:
        """Writes the kernel's statements in two branches, of which only the second has the bounds checks of a grid
        axis.
        """
        whole = self.size(axis.extent // axis.block)
        self._branch(f"if {axis.name}_tile < {whole}:", self.program.peeled_tests)
        self._branch("else:", frozenset())  # the last tile, if it is incomplete

    def _branch(self, head: str, needless: frozenset[Dim]) -> None:
        """Writes one branch of an `if` statement. The branch contains all statements of the kernel."""
        # `used` is the number of values in earlier branches, so that no later branch uses their names. If both branches
        # assigned to one name, Triton would pass the value out of the `if` statement, although nothing needs it there.
        self.used, self.needless, self.names, self.predicates = self.used + len(self.names), needless, {}, {}
        with self.lines.within(head):
            self._statements()

    def _initials(self) -> set[Op]:
        """Returns the constants that are only used as initial values of loop-carried variables."""
        ops = list(self.program.ops())
        initials: set[Op] = {op.initial for op in ops if isinstance(op, Carry) and isinstance(op.initial, Constant)}
        # The line that initialises a variable contains its constant, so the constant needs no line of its own.
        return initials - {o for op in ops if not isinstance(op, Carry) for o in children(op)}

    def _loop(self, loop: Loop) -> None:
        outer = dict(self.predicates)
        with ExitStack() as nest:
            if loop.redo:
                with self.lines.within(f"if rt.is_finite({self.names[loop.redo]}):"):
                    self.add(f"{self.names[loop.carries[0][0]]} = {self.names[loop.redo]}")
                nest.enter_context(self.lines.within("else:"))
            for a in (self.axes[name] for name in loop.axes):
                block = f"BLOCK_{a.name.upper()}" if a.block > 1 else "1"
                nest.enter_context(self.lines.within(f"for {a.name}_start in range({self._range(loop, a, block)}):"))
                lanes = widened(f"tl.arange(0, {block})" if a.block > 1 else "tl.full((), 0, tl.int32)", self.program)
                self.add(f"{a.name} = {a.name}_start" + (f" + {lanes}" if a.block > 1 or self.wide else ""))
            if self.program.hint(loop).wait:
                self.add("rt.settle()")
            for op in loop.body:
                self._op(op)
            for carry, following in loop.carries:
                self.add(f"{self.names[carry]} = {self.names[following]}")
        self.predicates = outer

    def _range(self, loop: Loop, axis: TileAxis, block: str) -> str:
        if self.program.from_end(loop):
            start = (axis.extent - 1) // axis.block * axis.block
            return f"{self.size(start)}, -{block}, -{block}"
        first = "0" if loop.first is None else self.index(loop.first)
        last = self.size(axis.extent) if loop.last is None else self.index(loop.last)
        return f"{first}, {last}, {block}"

    # ---- ops -------------------------------------------------------------------------

    def _op(self, op: Op) -> None:
        if isinstance(op, Store):
            return self._store(op)
        if op in self.initials:
            return None
        text = self._expression(op)
        if text.isidentifier():  # only another name: a cast to the same dtype, or a condition tested before
            self.names[op] = text
            return
        # The numbers of the names have gaps, because values that only have another name are counted too.
        self.names[op] = f"v{self.used + len(self.names)}"
        self.add(f"{self.names[op]} = {text}", op)

    def _expression(self, op: Op) -> str:
        context = self.lanes(op.axes)
        match op:
            case Load():
                return self._load(op, context)
            case Constant():
                return constant(float(op.value) if op.dtype.is_float else op.value, op.dtype)
            case ir.Scalar():
                return f"tl.full((), a{self.scalars.index(op.buffer)}, tl.{op.dtype.triton})"
            case ir.Position():
                expr = self.index(op.expr, context, op.picks)
                return f"({expr}).to(tl.{op.dtype.triton})" if context else f"tl.full((), {expr}, tl.{op.dtype.triton})"
            case ir.Inside():
                return self.predicate(op.conditions, context, op.picks) if op.conditions else "tl.full((), 1, tl.int1)"
            case ir.Compute(op="cast"):
                return convert(self.names[op.args[0]], op.args[0].dtype, op.dtype)
            case ir.Compute():
                operands = [self.value(a, context) for a in op.args]
                text = OPERATORS[op.op].spell(op.args[-1].dtype, *operands, relaxed=self.program.hint(op).fast)
                # In the interpreter a scalar comparison is an integer; `rt.to_bool` makes it a truth value.
                return text if context or OPERATORS[op.op].result != "bool" else f"rt.to_bool({text})"
            case ir.Spread():
                return f"tl.broadcast_to({self.value(op.x, context)}, {self.shape(context)})"
            case ir.Reduce():
                return self._reduce(op)
            case ir.Scan():
                if op.along not in context:
                    return self.names[op.x]
                return f"rt.scan_{running(op.op).name}({self.names[op.x]}, {context.index(op.along)})"
            case ir.Dot():
                return self._dot(op)
            case Carry():
                return self._carry(op, context)
            case Store() | ir.Old() | ir.Count():
                raise AssertionError(f"a {type(op).__name__} has no value here")

    def _pointer(self, op: ir.Access, context: tuple[str, ...], picks: Picks = ()) -> str:
        offset = op.offset
        text = self.index(offset, context, picks)
        if self.index_lanes(offset, picks) != context:
            text = f"tl.full({self.shape(context)}, 0, tl.int32) + {operand(text)}"
        pointer = f"p{self.pointers.index(op.buffer)}"
        return pointer if text == "0" else f"{pointer} + {text}"

    def _load(self, op: Load, context: tuple[str, ...]) -> str:
        if block := self.program.hint(op).descriptor:
            return descriptors.load(self.program, op, self.descriptors[op.buffer, block].name, context, self.index)
        arguments = [self._pointer(op, context, op.picks)]
        if tests := self._tests(op):
            mask = self.predicate(tests, context, op.picks)
            arguments += [f"mask={mask}", f"other={other_value(op.other, op.dtype)}"]
        if self.program.hint(op).evict_first:
            arguments.append('eviction_policy="evict_first"')
        return f"tl.load({', '.join(arguments)})"

    def _tests(self, op: Load | Store) -> list[Dim]:
        """Returns the mask conditions that a load or store tests in the current branch."""
        return [c for c in (op.mask.conditions if op.mask else ()) if c not in self.needless]

    def _store(self, op: Store) -> None:
        context = self.lanes([*axis_names(op.index), *op.value.axes])
        value = self.value(op.value, context)
        if block := self.program.hint(op).descriptor:
            name = self.descriptors[op.buffer, block].name
            self.add(descriptors.store(self.program, op, name, context, value, self.index), op)
            return
        pointer, tests = self._pointer(op, context), self._tests(op)
        mask = f", mask={self.predicate(tests, context)}" if tests else ""
        self.add(f"tl.store({pointer}, {value}{mask})", op)

    def _reduce(self, op: ir.Reduce) -> str:
        lanes, name = self.lanes(op.x.axes), reduction(op.op).name
        over = [lanes.index(a) for a in op.over if a in lanes]
        if op.index is not None:
            index = self.value(op.index, lanes)
            if not over:
                return index
            return f"rt.reduce_{name}({self.names[op.x]}, tl.broadcast_to({index}, {self.shape(lanes)}), {over[0]})[1]"
        if self.program.hint(op).in_parts:
            return f"rt.reduce_max_in_parts({self.names[op.x]})"
        text = self.names[op.x]
        for place in sorted(over, reverse=True):
            text = f"rt.reduce_{name}({text}, {place})"
        return text

    def _dot(self, op: ir.Dot) -> str:
        """Returns the source text of a call of `rt.dot`."""
        first, second = self.program.factors(op)
        # The first axis of the result, in the tile program's order of axes, is the row.
        outer, inner = op.tile if first is op.a else op.tile[::-1]
        a = self._oriented(first, (outer, op.over))  # axes [row, k]
        b = self._oriented(second, (op.over, inner))  # axes [k, column]
        assert op.acc is not None
        return f'rt.dot({a}, {b}, {self.names[op.acc]}, "{op.precision}")'

    def _oriented(self, op: Op, wanted: tuple[str, str]) -> str:
        lanes = self.lanes(op.axes)
        assert lanes in (wanted, wanted[::-1]), "a product has two axes"
        return self.names[op] if lanes == wanted else f"tl.trans({self.names[op]})"

    def _carry(self, op: Carry, context: tuple[str, ...]) -> str:
        if isinstance(op.initial, Constant):
            start = f"tl.full({self.shape(context)}, {number(op.initial.value)}, tl.{op.dtype.triton})"
            return f"rt.unknown({start})" if self.program.hint(op).unknown_start else start
        if context:
            return f"tl.broadcast_to({self.value(op.initial, context)}, {self.shape(context)})"
        return self.names[op.initial]
