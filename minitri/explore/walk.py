"""The guided walk: one span of the program through all stages, in about ten steps.

In: a trace, and the stages of a page as data. Out: plain data, a list of steps:

    {title, text, panes, marks, sketch}     panes: the two that matter; marks: what is lit in them
    sketch  {kind, caption, …}              kind: fusion, grid, tile or mask; None where a drawing says nothing more

The walk follows the node of the graph that has lines of its own in the most stages. Among several, it takes a product,
else a function such as exp, else a reduction, else the last operation. A step says what its stage no longer has
(stages.toml), and what that means for this program. For example, it says how many kernels and programs there are.

Left out: how a drawing looks (page/sketch.js).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minitri.base.diagnostics import listed
from minitri.base.dims import ONE, Dim
from minitri.explore.explanations import ABOUT
from minitri.explore.provenance import Trace
from minitri.kernels.ir import Access, Compute, Dot, Kernel, Load, Reduce, Scan, Store
from minitri.tiles.ir import Program, TileAxis

FUNCTIONS = ("exp", "exp2", "log", "tanh", "sin", "cos", "sqrt", "rsqrt", "erf", "sigmoid")
CASTS = "An operation widens 16-bit values to f32 and rounds its result, so here are casts that undo each other."
LAST = "Point at an instruction to read what it does. The free view has all stages and tools."
MOVES = ("view", "cast", "const", "index")  # nobody wants to follow these


def walk(trace: Trace, stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The steps; none for a program that begins after its graph."""
    shown = [s for s in stages if "text" in s]
    if "graph" not in trace.stages or (node := _followed(trace, shown)) is None:
        return []
    return list(_Walk(trace, {s["name"] for s in shown}, node).steps())


def _followed(trace: Trace, stages: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of the node to follow."""

    def worth(k: int) -> tuple[int, int, int]:
        own = sum(any(k in marks and how == "o" for marks, how in zip(s["links"], s["how"])) for s in stages)
        op = trace.nodes[k].op
        liking = 3 if op == "contract" else 2 if op in FUNCTIONS else op.startswith(("reduce", "scan"))
        return own, int(liking), k

    made = [k for k, n in enumerate(trace.nodes) if n.op != "input" and n.spans]
    found = [k for k in made if trace.nodes[k].op not in MOVES] or made
    return max(found, key=worth, default=None)


@dataclass(frozen=True, slots=True)
class _Walk:
    trace: Trace
    there: set[str]  # the stages that have a text
    node: int

    def steps(self) -> Iterator[dict[str, Any]]:
        for title, panes, text, sketch in self._plan():
            if all(p in self.there or p in ("source", "drawn", "player") for p in panes):
                marks = self._marks(sketch["kind"] if sketch else "")
                yield {"title": title, "panes": panes, "text": text, "marks": marks, "sketch": sketch}

    def _marks(self, kind: str) -> list[int]:
        """The numbers of the nodes to light: the node, or what the load of a step about a tile reads."""
        loaded = (
            self.trace.of(self._load.spans) if self._load is not None and kind in ("tile", "mask") else frozenset[int]()
        )
        return sorted(loaded if kind == "tile" else loaded | {self.node})

    def _plan(self) -> Iterator[tuple[str, list[str], str, dict[str, Any] | None]]:
        """Title, panes, text and drawing of every step, also of those whose stages are not there."""
        node = self.trace.nodes[self.node]
        code = " ".join(node.spans[0].text.split())
        yield (
            "Your program",
            ["source", "drawn"],
            (
                f"{ABOUT['source']} We follow `{code if len(code) < 60 else node.op}` down to the machine. What belongs to it is lit."
            ),
            None,
        )
        yield _step("graph", "source", f"The lit line is `{node.op}`. {CASTS * self._casts()}")
        yield _step("graph.simplified", "graph", "Compare the lit lines.")
        yield _step("kernels", "graph.simplified", self._fused(), self._fusion())
        yield _step("tile", "kernels", self._programs(), self._grid())
        if (load := self._load) is not None:
            yield "A tile of the input", ["tile", "player"], self._walked(load), self._tile(load)
        yield _step("tile.masked", "tile", self._masks(), self._mask())
        yield _step("tile.target", "tile.masked", "Words in braces tell Triton what is known or wanted.")
        yield _step(
            "triton", "tile.target", "`tl.load` reads a tile, `tl.store` writes one; the lines between compute."
        )
        yield _step("ttgir", "triton", "Its first lines, such as `#blocked`, are these layouts.")
        yield _step("ptx", "ttgir", "Each line is one instruction of one thread.")
        yield _step("sass", "ptx", LAST)
        yield _step("amdgcn", "ttgir", LAST)

    def _casts(self) -> bool:
        """Whether the graph has casts that the next stage drops."""
        before, after = (self.trace[s].text.count(" = cast ") for s in ("graph", "graph.simplified"))
        return before > after

    # ---- what the steps say of this program --------------------------------------------------

    @property
    def _kernels(self) -> Sequence[Kernel]:
        return self.trace.compilation.value("kernels").kernels

    @property
    def _program(self) -> Program:
        """The tile program that computes the node, with its masks; the first one if none does."""
        programs = list(self.trace.compilation.value("tile.masked"))
        return next((p for p in programs if self._computes(p.ops())), programs[0])

    def _computes(self, ops: Any) -> bool:
        return any(self.node in self.trace.of(op.spans) for op in ops)

    def _fused(self) -> str:
        count = len(self._kernels)
        if count > 1:
            return f"Here are {count} kernels. Running several operations in one kernel is called fusion."
        ops = len(_working(self._kernels[0]))
        return f"Here one kernel runs all {ops} operations: that is fusion." if ops > 1 else "Here is one kernel."

    def _fusion(self) -> dict[str, Any]:
        kernels = [
            {"name": k.name, "ops": [{"op": _word(op), "here": self._computes([op])} for op in _working(k)],
             "reads": _names(k, Load), "writes": _names(k, Store)}
            for k in self._kernels
        ]  # fmt: skip
        here = next((k for k, kernel in enumerate(self._kernels) if self._computes(kernel.body)), 0)
        caption = "each box is one kernel; values inside it stay in registers"
        return {"kind": "fusion", "kernels": kernels, "here": here, "caption": caption}

    def _programs(self) -> str:
        grid = self._program.grid
        if not grid:
            return "Here one program does all of it."
        axes = listed([f"{a.block} of {a.extent} along {a.name}" for a in grid])
        return (
            f"All programs run the same code. Each takes {axes}; together they are the grid of {_count(grid)} programs."
        )

    def _grid(self) -> dict[str, Any]:
        store = next(op for op in self._program.ops() if isinstance(op, Store))
        return {
            "kind": "grid",
            **self._array(store),
            "caption": f"the grid over {store.buffer.name}: one program writes one block",
        }

    def _walked(self, load: Load) -> str:
        """The text of the step that explains a tile."""
        axes = [a for a in self._program.axes if a.name in load.indexed_by]
        text = f"A tile is the part of an array that a program holds in registers. The lit line loads a tile of `{load.buffer.name}`"
        loop, whole = (next((a for a in axes if a.role == role), None) for role in ("loop", "whole"))
        if loop:
            return f"{text}, in each iteration of a loop along {loop.name}: {loop.block} elements at a time."
        return f"{text}: all {whole.extent} elements along {whole.name}." if whole else f"{text}."

    @property
    def _load(self) -> Load | None:
        """The load to draw: one along a loop, else along a whole axis, and of the highest rank."""
        loads = [op for op in self._program.ops() if isinstance(op, Load)]
        roles = {a.name: a.role for a in self._program.axes}
        has = lambda op, role: any(roles.get(n) == role for n in op.indexed_by)  # noqa: E731
        return max(loads, key=lambda op: (has(op, "loop"), has(op, "whole"), len(op.index)), default=None)

    def _tile(self, load: Load) -> dict[str, Any]:
        caption = f"the tile of {load.buffer.name} that one program loads"
        return {"kind": "tile", **self._array(load), "caption": caption}

    def _masks(self) -> str:
        axis = self._tested()
        if axis is None:
            return "Here all blocks end where the arrays end, so no access needs a mask."
        if axis.role == "whole":
            return f"A tile has {axis.lanes} elements along {axis.name}, a power of two, and {axis.extent} are real: the mask leaves out the rest."
        return (
            f"The last block along {axis.name} can reach past the end of the array: the mask leaves those elements out."
        )

    def _tested(self) -> TileAxis | None:
        """The last axis that a mask tests."""
        masks = [op.mask for op in self._program.ops() if isinstance(op, (Load, Store)) and op.mask]
        names = {s.name for mask in masks for c in mask.conditions for s in c.symbols()}
        return next((a for a in reversed(self._program.axes) if a.name in names), None)

    def _mask(self) -> dict[str, Any] | None:
        tested = self._tested()
        if tested is None:
            return None
        accesses = [op for op in self._program.ops() if isinstance(op, (Load, Store)) and tested.name in op.indexed_by]
        if not accesses:
            return None
        one = max(accesses, key=lambda op: len(op.index))
        return {
            "kind": "mask",
            **self._array(one),
            "tested": tested.name,
            "caption": f"hatched: past the end of {one.buffer.name}, masked",
        }

    def _array(self, access: Access) -> dict[str, Any]:
        """The array of an access as data: for each dimension the axis of the program along it, and its blocks."""
        axes = {a.name: a for a in self._program.axes}
        dims = [_dim(extent, [axes[n] for n in axes if n in {s.name for s in index.symbols()}])
                for extent, index in zip(access.buffer.shape, access.index)]  # fmt: skip
        return {"name": access.buffer.name, "dims": dims or [_dim(ONE, ())]}  # an array without axes is one element


def _step(stage: str, before: str, more: str, sketch: Any = None) -> tuple[str, list[str], str, dict[str, Any] | None]:
    return stage, [before, stage], f"{ABOUT[stage]} {more}".strip(), sketch


def _dim(extent: Dim, axes: Sequence[TileAxis]) -> dict[str, Any]:
    known = int(str(extent)) if re.fullmatch(r"\d+", str(extent)) else None
    axis = axes[0] if len(axes) == 1 else None
    return {"extent": str(extent), "size": known, "axis": axis.name if axis else "", "role": axis.role if axis else "whole",
            "block": axis.block if axis else 0, "lanes": axis.lanes if axis else 0}  # fmt: skip


def _count(grid: Sequence[TileAxis]) -> str:
    """`250`, `64 × 8`, `ceil(M/4)`."""
    known = [str(a.tiles) if not a.tiles.symbols() or a.block == 1 else f"ceil({a.extent}/{a.block})" for a in grid]
    return " × ".join(n for n in known if n != "1") or "1"


def _working(kernel: Kernel) -> list[Any]:
    ops = [op for op in kernel.body if isinstance(op, (Compute, Reduce, Scan, Dot))]
    return [op for op in ops if _word(op) != "cast"] or ops


def _word(op: Any) -> str:
    return "product" if isinstance(op, Dot) else op.op


def _names(kernel: Kernel, kind: type[Access]) -> list[str]:
    return list(dict.fromkeys(op.buffer.name for op in kernel.body if isinstance(op, kind)))
