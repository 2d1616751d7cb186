"""Proves that a masked tile program stays in its arrays, and writes every element once. The module also proves that
each bounds check of the program is needed.

The function `prove` takes a masked tile program, and the conditions that minitri checks at each call. It returns a list
of verdicts, each about one of three claims:

`in bounds`: an access stays in its array. The proof uses the ranges of the axes and the conditions of the mask. An
    example refutes a wrong claim.
`needed`: for each condition of a mask, an example shows what happens without the condition.
`written once`: for each buffer with stores, the blocks of the stores contain every element of the buffer exactly once.

The one idea: the proofs come from an independent checker, which reads the masked program alone and does not rely on the
masking pass. From the grid and the block sizes, the checker derives inequalities for the indices of each axis.

    grid i: M by 4     i = 4*tile + element,  0 <= tile < (M + 3)//4,  0 <= element < 4

A wrong mask is refuted by an example: sizes and an index for which the access goes wrong
(trust/bounds_counterexamples.py). The proofs assume that an index that is loaded from memory can be any number. The
files graph/index_width.py and optimize/index_width.py check whether offsets fit into 32 bits.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from minitri.base.dims import ONE, Dim, Symbol, value
from minitri.base.inequalities import Fact, Proof, prove as follows
from minitri.graph.ir import Condition
from minitri.kernels.ir import Carry, Load, Op, Scan, Store, are_slices, reduced_by
from minitri.kernels.text import comparison, format_op
from minitri.tiles.index_facts import known, lane_symbol, running
from minitri.tiles.ir import Access, Program, TileAxis, enclosing, lane_number
from minitri.trust.bounds_counterexamples import Example, not_written_once, out_of_bounds

Goal = tuple[str, Dim, Sequence[Fact]]  # a claim in words, an expression that must be at least 0, known facts
BOUNDS, NEEDED, ONCE = "in bounds", "needed", "written once"


class Verdict(NamedTuple):
    """Says whether one claim about a load or store is proven.

    `status`: "proven", "needed", "refuted", "idle" or "not proven". "needed" means that the bounds check is needed, as
        an example or a reason shows. "idle" means that the bounds check is not needed.
    `why`: a text that justifies the status: a proof, an example or a reason.
    """

    program: str
    op: Access
    statement: str
    claim: str
    subject: str
    status: str
    why: str
    proofs: tuple[Proof, ...] = ()
    example: Example | None = None
    test: Dim | None = None  # the condition that a claim "needed" is about

    @property
    def ok(self) -> bool:
        return self.status in ("proven", "needed")

    def __str__(self) -> str:
        return f"{self.program}: {self.statement}\n  {self.claim} {self.subject}: {self.status}, {self.why}"


def prove(program: Program, conditions: Sequence[Condition] = (), needed: bool = True) -> list[Verdict]:
    """Returns the verdicts about the memory accesses of a masked program, in the order of the program's statements.

    The proofs can assume that the `conditions` hold, because each call checks them before the program runs. If `needed`
    is false, the function does not examine whether each bounds check is needed.
    """
    return _Proving(program, conditions).run(needed)


class _Proving:
    def __init__(self, program: Program, conditions: Sequence[Condition]) -> None:
        self.program, self.conditions = program, conditions
        self.axes = {a.name: a for a in program.axes}
        self.names: dict[Op, str] = {}
        self.statements = {op: format_op(op, self.names) for op in program.ops()}
        self.reduced = {a: op for op in program.ops() for a in _reduced(op, program)}
        self.checked = list(_checked(conditions))
        stores = [op for op in program.ops() if isinstance(op, Store)]
        self.stores = {s.buffer.name: [t for t in stores if t.buffer.name == s.buffer.name] for s in stores}
        self.common = [*self.checked, *running(program)]
        # If an axis of the grid has no blocks, no grid program runs.
        self.never = next((a.name for a in program.grid if a.tiles == 0), "")

    def run(self, needed: bool) -> list[Verdict]:
        found: list[Verdict] = []
        for op in self.program.ops():
            if isinstance(op, (Load, Store)):
                found.append(self._in_bounds(op))
                found += [self._needed(op, c) for c in _tests(op)] if needed else []
        return found + [self._written_once(group) for group in self.stores.values()]

    def _verdict(self, op: Access, claim: str, subject: str, **more: Any) -> Callable[..., Verdict]:
        """Returns a function that makes a `Verdict` on a claim about an access."""
        return partial(Verdict, self.program.name, op, self.statements[op], claim, subject, **more)

    def _facts(self, op: Access, tests: Sequence[Dim]) -> list[Fact]:
        return [*self.checked, *known(self.program, op, tests)]

    # ---- accesses --------------------------------------------------------------------

    def _in_bounds(self, op: Access) -> Verdict:
        if self.never:
            return self._verdict(op, BOUNDS, op.buffer.name)("proven", f"it never runs: {self.never} is empty")
        subject = f"{op.buffer.name}[{', '.join(map(str, self._named(op, op.index)))}]"
        verdict = self._verdict(op, BOUNDS, subject)
        proofs, missing = self._bounds(op, _tests(op))
        if not missing:
            return verdict("proven", self._shown(op, proofs), tuple(proofs))
        if example := self._search(op, _tests(op)):
            return verdict("refuted", str(example), example=example)
        goals = ", ".join(comparison(g) for g in self._named(op, missing))
        return verdict("not proven", f"no proof of {goals}, and no example against it")

    def _bounds(self, op: Access, tests: Sequence[Dim]) -> tuple[list[Proof], list[Dim]]:
        """Returns the proofs that an index is in bounds, and the inequalities that the method cannot prove."""
        facts = self._facts(op, tests)
        goals = [g for d, e in zip(op.index, op.buffer.shape) for g in (d, e - 1 - d)]
        proofs = [(g, follows(g, facts)) for g in goals]
        return [p for _, p in proofs if p is not None], [g for g, p in proofs if p is None]

    def _needed(self, op: Access, test: Dim) -> Verdict:
        """Decides whether the mask of a load or store needs the bounds check `test`."""
        verdict = self._verdict(op, NEEDED, comparison(self._named(op, [test])[0]), test=test)
        # The search drops `test` from the mask, and looks for sizes and an index for which the access goes wrong.
        rest = [c for c in _tests(op) if c != test]
        if self.never:
            return verdict("idle", f"it never runs: {self.never} is empty")
        # A short search comes before the proofs, because most examples are found quickly.
        example, missing = self._search(op, rest, tries=4), list[Dim]()
        if example is None and (missing := self._bounds(op, rest)[1]):
            example = self._search(op, rest)
        if example is None and isinstance(op, Store):
            stores = self.stores[op.buffer.name]
            tests = [rest if s is op else _tests(s) for s in stores]
            example = not_written_once(self.program, stores, tests, self.conditions)
        if example is not None:
            return verdict("needed", f"without it {example}", example=example)
        if follows(test, self._facts(op, rest)) is not None:
            return verdict("idle", "the others imply it")
        if isinstance(op, Load) and (reason := self._meaning(op, test)):
            return verdict("needed", reason)
        if not missing:
            return verdict("idle", "the access is in bounds without it")
        return verdict("not proven", "no example of what happens without it")

    def _search(self, op: Access, tests: Sequence[Dim], **tries: int) -> Example | None:
        """Returns an example of an access out of bounds, or None if none is found."""
        example = out_of_bounds(self.program, op, tests, self.conditions, **tries)
        if example is None or not isinstance(op, Load):
            return example
        # A loaded value has its name from the text of the tile program, such as `%3`.
        names = {s.name: self.names[v] for s, v in op.picks}
        return example._replace(at={names.get(n, n): v for n, v in example.at.items()})

    def _meaning(self, op: Load, test: Dim) -> str | None:
        """Returns the reason why a load needs the condition `test`, if the reason is not the bounds of the array."""
        if test in op.guards:
            return f"the program asks for {op.other} elsewhere"
        for s in test.symbols():
            name = s.name.removesuffix("_lane")
            if s.kind == "axis" and name in self.reduced:
                kind = self.reduced[name]
                return f"a lane past the end of {name} must not count in the {getattr(kind, 'op', 'product')}"
        return None  # only the bounds of the array can require `test`

    # ---- stores ----------------------------------------------------------------------

    def _written_once(self, stores: Sequence[Store]) -> Verdict:
        op = stores[0]
        verdict = self._verdict(op, ONCE, op.buffer.name)
        if self.never and any(e == 0 for e in op.buffer.shape):
            return verdict("proven", "it has no elements")
        found = [self._once(s, len(stores)) for s in stores] if are_slices(stores) else [([], ["different slices"], [])]
        proofs, missing = [p for claims, _, _ in found for p in claims], [m for _, claims, _ in found for m in claims]
        if not missing:
            return verdict("proven", "; ".join(found[0][2]), tuple(proofs))
        if example := not_written_once(self.program, stores, [_tests(s) for s in stores], self.conditions):
            return verdict("refuted", str(example), example=example)
        return verdict("not proven", f"no proof of {', '.join(missing)}")

    def _once(self, op: Store, slices: int) -> tuple[list[Proof], list[str], list[str]]:
        """Tries to prove that a store writes each element of its buffer exactly once."""
        facts, inside = self._facts(op, _tests(op)), [*self.common, *self._all_inside()]
        goals, walked, parts, numbered = list[Goal](), list[str](), list[str](), ONE
        for d, extent in zip(op.index, op.buffer.shape):
            a = self.axes.get(d.atom.name) if isinstance(d.atom, Symbol) and d.atom.kind == "axis" else None
            if a is None:
                numbered *= extent
                goals.append((f"{d} = {d.constant or 0}", (d.constant or 0) - d, inside))
            else:
                walked.append(a.name)
                goals += self._covers(a, extent, facts, inside)
                parts.append(self._said(a, extent, _tests(op)))
        # `slices` stores write the buffer. If there are several, the claims concern only the slice of this store.
        goals.append((f"the extent {numbered} = {slices}", slices - numbered, inside))
        goals += [(f"{comparison(c)} on every element", c, inside) for c in _tests(op)]
        twice = [n for n in set(walked) if walked.count(n) > 1]
        over = {*(a.name for a in self.program.grid), *enclosing(self.program, op), *op.value.axes} - set(walked)
        counts = {n: self.axes[n].blocks * self.axes[n].lanes for n in sorted(over)}  # axes with elements past the end
        goals += [(f"one {n} an element", ONE - count, self.common) for n, count in counts.items()]
        found = [(words, follows(goal, known)) for words, goal, known in goals]
        missing = [f"a place of its own for {n}" for n in twice] + [words for words, p in found if p is None]
        # The proofs that were found, the claims without a proof, and an explanation in English.
        return [p for _, p in found if p is not None], missing, parts or ["it is one element"]

    def _covers(self, a: TileAxis, extent: Dim, facts: Sequence[Fact], inside: Sequence[Fact]) -> Iterator[Goal]:
        """Yields the claims that prove that blocks contain every index below `extent` exactly once."""
        yield f"{a.name} reaching {extent}", a.blocks * a.block - a.extent, inside
        yield f"{a.extent} <= {extent}", extent - a.extent, inside
        yield f"{a.extent} >= {extent}", a.extent - extent, inside
        if a.lanes != a.block:
            yield f"lanes of {a.name} within a block", a.block - 1 - lane_number(a.name), facts

    def _said(self, a: TileAxis, extent: Dim, tests: Sequence[Dim]) -> str:
        symbols = {s for c in tests for s in c.symbols()}
        blocks = f"{a.tiles} blocks of {a.block}" if a.role != "whole" else f"one block of {a.block}"
        apart = f", lanes from {a.block} on are tested" if lane_symbol(a) in symbols else ""
        end = f", what is past {extent} is tested" if a.symbol in symbols else ""
        return f"{a.name} meets 0 … {extent - 1} once: {blocks}{end}{apart}"

    def _all_inside(self) -> Iterator[Fact]:
        """Yields facts about every element that a store must write."""
        for a in self.program.axes:
            yield Fact(a.extent - 1 - a.index, f"{a.name} is inside")
            yield Fact(a.block - 1 - lane_number(a.name), f"the lane of {a.name} is inside")

    # ---- words -----------------------------------------------------------------------

    def _named(self, op: Access, exprs: Sequence[Dim]) -> list[Dim]:
        picks = op.picks if isinstance(op, Load) else ()
        return [d.substitute({s: value(self.names[v]) for s, v in picks}) for d in exprs]

    def _shown(self, op: Access, proofs: Sequence[Proof]) -> str:
        """Returns the facts that the given proofs use, in words."""
        # Proofs of inequalities with only sizes and constants are left out.
        varying = [p for p in proofs if p.goal.constant is None and any(s.kind != "size" for s in p.goal.symbols())]
        clauses: dict[str, None] = {}
        for f in (f for p in varying for f in p.facts()):
            if f.because == "tested":
                clauses[f"{comparison(self._named(op, [f.expr])[0])} is tested"] = None
            elif "block" in f.because:
                clauses[f.because] = None
        return ", ".join(clauses) or ("it is the only element" if not op.index else "the extents fit")


# ---- parts -------------------------------------------------------------------------------


def _checked(conditions: Sequence[Condition]) -> Iterator[Fact]:
    """Yields the conditions on sizes that each call checks before running a kernel."""
    for c in conditions:
        if c.relation in ("==", ">="):
            yield Fact(c.left - c.right, f"checked: {c.left} {c.relation} {c.right}")
        if c.relation == "==":
            yield Fact(c.right - c.left, f"checked: {c.left} == {c.right}")


def _tests(op: Access) -> tuple[Dim, ...]:
    return op.mask.conditions if op.mask is not None else ()


def _reduced(op: Op, program: Program) -> tuple[str, ...]:
    """Returns the axes along which an op combines elements."""
    if isinstance(op, Carry):
        return tuple(n for n in op.axes if program.axis(n).role != "grid")
    return (op.along,) if isinstance(op, Scan) else reduced_by(op)
