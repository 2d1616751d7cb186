"""The guided walk: one span of the program through all stages, in about ten steps.

In: a trace, and the stages, passes and player of a page as data. Out: plain data, a list of steps:

    {title, text, panes, marks, sketch}     panes: the two that matter; marks: what is lit in them
    sketch  {kind, caption, …}              kind: fusion, grid, tile or mask; None where a drawing says nothing more

The walk follows the node of the graph that has lines of its own in the most stages. Among several, it takes a product,
else a function such as exp, else a reduction, else the last operation. A step says what its stage has and
what is gone (stages.toml), and what that means for this program. For example, it says how many kernels and grid programs
there are. A step between two stages with the same text is left out. The texts are in walk.toml.

Left out: how a drawing looks (page/sketch.js).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minitri.base.diagnostics import listed
from minitri.base.dims import ONE, Dim
from minitri.base.toml_tables import table_beside
from minitri.explore.explanations import ABOUT, WORDS
from minitri.explore.plans import operations, operator
from minitri.explore.provenance import Trace
from minitri.explore.triton_provenance import OWN
from minitri.kernels.ir import Access, Compute, Constant, Inside, Kernel, Load, Op, Store
from minitri.kernels.text import comparison
from minitri.tiles.ir import TileAxis

STEPS = table_beside(__file__, "walk.toml")["steps"]
FUNCTIONS = ("exp", "exp2", "log", "tanh", "sin", "cos", "sqrt", "rsqrt", "erf", "sigmoid")
CASTS = "Such casts come from 16-bit values: each operation widens them to f32 and rounds its result."
MOVES = ("view", "cast", "const", "index")  # nobody wants to follow these
OTHER_PANES = {"source", "drawn", "player"}  # of the walk that are no stages
NEUTRAL = {float("-inf"): "maximum", float("inf"): "minimum", 0.0: "sum", 1.0: "product"}
LOADED = re.compile(r"tl\.load\((\w+) \+ (.+?)(?:, mask=(.+?))?(?:, other=(.+?))?(?:, \w+=\S+)*\)$")
Data = Mapping[str, Any]  # a part of a page


def walk(trace: Trace, stages: Sequence[Data], passes: Sequence[Data], player: Data | None) -> list[dict[str, Any]]:
    """The steps; none for a program that begins after its graph."""
    texts = {s["name"]: s["text"] for s in stages if "text" in s}
    if "graph" not in trace.stages or (node := followed(trace, texts)) is None:
        return []
    return list(_Walk(trace, node, texts, passes, player).steps())


def followed(trace: Trace, stages: Iterable[str]) -> int | None:
    """The number of the node that is worth following through some stages."""
    lines = [[nodes for nodes, how in zip(trace[s].lines, trace[s].how) if how == OWN] for s in stages]

    def worth(k: int) -> tuple[int, int, int]:
        op = trace.nodes[k].op
        liking = 3 if op == "contract" else 2 if op in FUNCTIONS else op.startswith(("reduce", "scan"))
        return sum(any(k in nodes for nodes in own) for own in lines), int(liking), k

    made = [k for k, n in enumerate(trace.nodes) if n.op != "input" and n.spans]
    found = [k for k in made if trace.nodes[k].op not in MOVES] or made
    return max(found, key=worth, default=None)


class _Walk:
    """The walk along a node: the tile program that computes it, and the accesses that are drawn.

    load     one along a loop, else along a whole axis, and of the highest rank
    tested   the last axis that a mask tests, and `masked` an access along it
    """

    def __init__(
        self, trace: Trace, node: int, texts: Mapping[str, str], passes: Sequence[Data], player: Data | None
    ) -> None:
        self.trace, self.node, self.texts, self.passes, self.player = trace, node, texts, passes, player
        self.kernels: Sequence[Kernel] = trace.compilation.value("kernels").kernels
        programs = list(trace.compilation.value("tile.masked"))
        self.program = next((p for p in programs if self._computes(p.ops())), programs[0])
        accesses = [op for op in self.program.ops() if isinstance(op, (Load, Store))]
        self.store = next(op for op in accesses if isinstance(op, Store))
        loads = [op for op in accesses if isinstance(op, Load)]
        self.load = max(loads, key=lambda op: (*map(bool, self._along(op)), len(op.index)), default=None)
        tests = [(op, _conditions(op)) for op in accesses]
        self.tested = next((a for a in reversed(self.program.axes) if any(a.name in of for _, of in tests)), None)
        masked = [op for op, of in tests if self.tested and self.tested.name in of]
        self.masked = max(masked, key=lambda op: len(op.index), default=None)

    def _computes(self, ops: Iterable[Op]) -> bool:
        return any(self.node in self.trace.of(op.spans) for op in ops)

    def _along(self, access: Access) -> tuple[TileAxis | None, TileAxis | None]:
        """The loop and the whole axis that an access goes along."""
        axes = [a for a in self.program.axes if a.name in access.indexed_by]
        loop, whole = (next((a for a in axes if a.role == role), None) for role in ("loop", "whole"))
        return loop, whole

    # ---- steps -------------------------------------------------------------------------------

    def _shown(self, panes: Sequence[str]) -> bool:
        """Whether both panes are there, and differ."""
        there = {*self.texts, *OTHER_PANES} - ({"player"} if self.player is None else set())
        before, after = (self.texts.get(pane) for pane in panes)
        return there >= set(panes) and (before is None or before != after)

    def steps(self) -> Iterator[dict[str, Any]]:
        """The steps whose stages have a text, and not the same one."""
        facts, drawings = self._facts(), self._drawings()
        loaded = self.trace.of(self.load.spans) if self.load else frozenset[int]()
        lit = {"tile": loaded, "mask": loaded | {self.node}}
        for step in STEPS:
            kind, panes = step.get("sketch", ""), step["panes"]
            drawing = drawings.get(kind)
            if not self._shown(panes) or (kind == "tile" and drawing is None):
                continue
            text = f"{ABOUT.get(step.get('about', panes[1]), '')} {step['text'].format(**facts)}".strip()
            sketch = drawing and {"kind": kind, "caption": step["caption"].format(**facts), **drawing}
            marks = sorted(lit.get(kind, {self.node}) if drawing else {self.node})
            yield {"title": step.get("title", panes[1]), "panes": panes, "text": text, "marks": marks, "sketch": sketch}

    def _facts(self) -> dict[str, str]:
        """What the texts say of this program."""
        node = self.trace.nodes[self.node]
        code = " ".join(node.spans[0].text.split())
        axes = ", ".join(f"{a.name}: {a.extent}" for a in self.program.axes)
        return {
            "kernel": WORDS["terms"]["kernel"],
            "tile": WORDS["terms"]["tile"],
            **self._stages(),
            **self._played(),
            "asked": self._triton(),
            "targeted": self._changes("tile.masked", "tile.target"),
            "code": code if len(code) < 60 else node.op,
            "op": node.op,
            "type": node.text.partition(": ")[2].partition(" = ")[0],
            "simplified": self._simplified(),
            "fused": self._fused(),
            "axes": f"From here on axes have names: `{axes}`." if axes else "",
            "programs": self._programs(),
            "stored": self.store.buffer.name,
            "loaded": self.load.buffer.name if self.load else "",
            "load": f"load {self.load.buffer.name}[{', '.join(map(str, self.load.index))}]" if self.load else "",
            "part": self._part(),
            "masked": self._masks(),
            "tested": self.masked.buffer.name if self.masked else "",
        }

    def _stages(self) -> dict[str, str]:
        """The stages that the walk goes through, and the stages that it passes over."""
        gone_through = {pane for step in STEPS for pane in step["panes"]}
        to_come, skipped = ([f"`{s}`" for s in self.texts if (s in gone_through) == there] for there in (True, False))
        said = f" The walk passes over {listed(skipped)}, which the free view has." if skipped else ""
        return {"stages": listed(to_come), "skipped": said}

    def _changes(self, before: str, after: str) -> str:
        """The passes between two stages that changed the program, with their rules that fired."""
        at = {p["stage"]: k for k, p in enumerate(self.passes)}
        between = self.passes[at[before] + 1 : at[after] + 1]
        changed = [p for p in between if any(not renumbered for *_, renumbered in p["patch"])]
        return " ".join(f"Here the pass `{p['name']}` changed it: {_reason(p)}" for p in changed)

    def _simplified(self) -> str:
        """What the passes over the graph did: casts, operations and sizes."""
        texts = [self.trace[stage].text for stage in ("graph", "graph.simplified")]
        casts, counts = ([text.count(sign) for text in texts] for sign in (" = cast ", "\n  %"))
        known = [f"{name} = {size}" for name, size in self.trace.compilation.context.sizes.items()]
        said = [CASTS] if casts[0] > casts[1] else []
        said += [f"Here {counts[0]} lines became {counts[1]}."] if counts[0] != counts[1] else []
        said += [f"The sizes are numbers now: {listed(known)}."] if known else []
        required = [text.count("\n  require ") for text in texts]
        said += ["Conditions that these sizes meet are gone."] if required[0] > required[1] else []
        return " ".join([*said, self._changes("graph.specialised", "graph.simplified")])

    def _fused(self) -> str:
        count, ops = len(self.kernels), sum(len(operations(k)) for k in self.kernels)
        if ops == 1:
            return "Running several operations in one kernel would save that: fusion. Here is only one operation."
        where = "one kernel runs" if count == 1 else f"{count} kernels run"
        return (
            f"Running several operations in one kernel saves that, and is called fusion. Here {where} {ops} operations."
        )

    def _programs(self) -> str:
        if not self.program.grid:
            return "Here one grid program does all of it."
        axes = listed([f"{a.block} of {a.extent} along {a.name}" for a in self.program.grid])
        count = _count(self.program.grid)
        made = (
            "one grid program makes up the grid, and takes"
            if count == "1"
            else f"{count} grid programs make up the grid, and each takes"
        )
        return f"Here {made} {axes}."

    def _part(self) -> str:
        """What a grid program loads along each axis of the load that is drawn."""
        axes = [a for a in self.program.axes if self.load and a.name in self.load.indexed_by]
        parts = [f"{'all' if a.role == 'whole' else f'{a.block} of'} {a.extent} along {a.name}" for a in axes]
        loops = [f", in each iteration of a loop along {a.name}" for a in axes if a.role == "loop"]
        return listed(parts or ["one element"]) + "".join(loops)

    def _masks(self) -> str:
        axis = self.tested
        if axis is None:
            return "Here all blocks end where the arrays end, so no access needs a mask."
        size = f"The last block along {axis.name} can reach past the end of the array."
        if axis.role == "whole":
            size = (
                f"Triton needs a power of two, so a tile has {axis.lanes} elements along {axis.name}. "
                f"The array has {axis.extent}."
            )
        left_out = f"The mask `{comparison(_conditions(self.masked)[axis.name])}` leaves out the rest."
        return " ".join([size, left_out, *self._neutral()])

    def _neutral(self) -> Iterator[str]:
        """What stands for masked elements in a reduction, and why."""
        ops = list(self.program.ops())
        values = [op.other for op in ops if isinstance(op, Load) and _conditions(op) and op.other]
        chosen = [op.args for op in ops if isinstance(op, Compute) and op.op == "where"]
        values += [c.value for test, _, c in chosen if isinstance(test, Inside) and isinstance(c, Constant)]
        known = [f"`{value}`, which changes no {NEUTRAL[value]}" for value in dict.fromkeys(values) if value in NEUTRAL]
        if known:
            yield f"For a reduction, a masked element counts as {'; or as '.join(known)}."

    def _played(self) -> dict[str, str]:
        """The sizes of the player's example, and an axis whose tiles have more elements than its blocks."""
        played = self.player or {"sizes": {}, "kernels": []}
        axes = [a for kernel in played["kernels"] for a in kernel["axes"]]
        wide = next((a for a in axes if a["role"] != "whole" and a["lanes"] > a["block"]), None)
        sizes = [f"{name} = {size}" for name, size in played["sizes"].items()]
        lanes = wide and (
            f"`in {wide['lanes']} lanes` means that the tile of a block of {wide['block']} along {wide['name']} has "
            f"{wide['lanes']} elements, because Triton needs a power of two. The rest is past the end of the block."
        )
        return {"sizes": f", here {listed(sizes)}" if sizes else "", "lanes": lanes or ""}

    def _triton(self) -> str:
        """What a reader of the Triton source asks: what `rt` is, and what the parts of a load are."""
        text, said = self.texts["triton"], []
        if self.texts["tile.masked"] == self.texts["tile.target"]:
            said.append("The stage `tile.target` changed nothing here.")
        if "import rt" in text:
            said.append("`rt` is a small library of functions that kernels call.")
        loaded = self.trace.of(self.load.spans) if self.load else frozenset[int]()
        own = (row for row, nodes in zip(text.split("\n"), self.trace["triton"].lines) if loaded and loaded <= nodes)
        found = next((match for row in own if (match := LOADED.search(row))), None)
        if found is not None and self.load is not None:
            pointer, place, mask, other = found.groups()
            said.append(f"In `tl.load`, `{pointer}` is the start of `{self.load.buffer.name}` in memory.")
            said.append(f"`{place}` is the place of each element, counted from there.")
            rest = ", and `other` is what the rest become" if other else ""
            said += [f"`mask` says which elements are read{rest}."] if mask else []
        return " ".join(said)

    # ---- drawings ------------------------------------------------------------------------------

    def _drawings(self) -> dict[str, dict[str, Any] | None]:
        return {
            "fusion": self._fusion(),
            "grid": self._array(self.store),
            "tile": self.load and self._array(self.load),
            "mask": self.masked and self.tested and {**self._array(self.masked), "tested": self.tested.name},
        }

    def _fusion(self) -> dict[str, Any]:
        kernels = [
            {"name": k.name, "ops": [{"op": operator(op), "here": self._computes([op])} for op in operations(k)],
             "reads": _names(k, Load), "writes": _names(k, Store)}
            for k in self.kernels
        ]  # fmt: skip
        here = next((k for k, kernel in enumerate(self.kernels) if self._computes(kernel.body)), 0)
        return {"kernels": kernels, "here": here}

    def _array(self, access: Access) -> dict[str, Any]:
        """The array of an access as data: for each dimension the axis of the program along it, and its blocks."""
        names = [{s.name for s in index.symbols()} for index in access.index]
        axes = [[a for a in self.program.axes if a.name in own] for own in names]
        dims = list(map(_dim, access.buffer.shape, axes))
        return {"name": access.buffer.name, "dims": dims or [_dim(ONE, ())]}  # an array without axes is one element


def _reason(p: Data) -> str:
    """`two casts become one …`: what its rules did, or what a pass without rules does."""
    rules = [
        f"{rule['about'].rstrip('.')} (`{rule['name']}`, {rule['count']}×)." for rule in p["rules"] if rule["about"]
    ]
    return " ".join(rules[:2]) or p["about"].partition(": ")[2]


def _conditions(access: Access | None) -> dict[str, Dim]:
    """The conditions of a mask, by the axes that they test."""
    found = access.mask.conditions if access and access.mask else ()
    return {s.name: c for c in found for s in c.symbols()}


def _dim(extent: Dim, axes: Sequence[TileAxis]) -> dict[str, Any]:
    along = {"axis": "", "role": "whole", "block": 0, "lanes": 0}
    if len(axes) == 1:
        along = {"axis": axes[0].name, "role": axes[0].role, "block": axes[0].block, "lanes": axes[0].lanes}
    return {"extent": str(extent), "size": extent.constant, **along}


def _count(grid: Sequence[TileAxis]) -> str:
    """`250`, `64 × 8`, `ceil(M/4)`."""
    known = [str(a.tiles) if not a.tiles.symbols() or a.block == 1 else f"ceil({a.extent}/{a.block})" for a in grid]
    return " × ".join(n for n in known if n != "1") or "1"


def _names(kernel: Kernel, kind: type[Access]) -> list[str]:
    return list(dict.fromkeys(op.buffer.name for op in kernel.body if isinstance(op, kind)))
