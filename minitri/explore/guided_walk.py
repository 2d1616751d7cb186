"""The guided walk: a tour of the page that follows one span of the program through all stages, in about ten steps.

The function `walk` takes a `Trace` (provenance.py), and plain data of the page. The data of the page are the stages,
the passes, and the recorded run on small arrays (execution_trace.py). The function `walk` returns a list of steps, as
plain data:

    {title, text, panes, marks, rows, sketch}   panes: the two panes that are open; marks: what they highlight
    rows    [[line, …], [line, …]]              the lines of each pane that the text names, and that the page reveals
    sketch  {kind, caption, …}                  kind: fusion, grid, tile or mask; the sketch of some steps is None

The guided walk follows the graph node that appears in the most stages. If several nodes appear in equally many stages,
the walk prefers, in this order: matrix products, functions such as exp, reductions, the last operation. The text of a
step says what is new in a stage, and what has disappeared since the previous stage (stages.toml). The text of a step
also says what changed for the program: for example, how many kernels and grid programs there are. The walk leaves out a
step if both panes of the step would show the same text. The texts of the steps are in guided_walk.toml.

The file page/sketch.js draws the sketch of a step.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined

from minitri.base.diagnostics import listed
from minitri.base.dims import ONE, Dim
from minitri.base.toml_tables import table_beside
from minitri.explore.explanations import ABOUT, WORDS
from minitri.explore.fusion_drawings import operations, operator
from minitri.explore.provenance import Trace
from minitri.explore.triton_provenance import OWN
from minitri.kernels.ir import Access, Compute, Constant, Inside, Kernel, Load, Op, Plan, Store
from minitri.kernels.text import comparison, plan_lines
from minitri.tiles.ir import TileAxis
from minitri.tiles.text import programs_lines
from minitri.triton.source import line_ops

STEPS = table_beside(__file__, "guided_walk.toml")["steps"]
TEMPLATES = Environment(undefined=StrictUndefined)  # nothing is escaped: the page inserts texts as text, not HTML
TEMPLATES.filters |= {"listed": listed, "assignments": lambda sizes: [f"{n} = {size}" for n, size in sizes.items()]}
FUNCTIONS = ("exp", "exp2", "log", "tanh", "sin", "cos", "sqrt", "rsqrt", "erf", "sigmoid")
MOVES = ("view", "cast", "const", "index")  # the walk does not follow these operations
OTHER_PANES = {"source", "drawn", "player"}  # panes of the walk that are no stages
NEUTRAL = {float("-inf"): "maximum", float("inf"): "minimum", 0.0: "sum", 1.0: "product"}
LOADED = re.compile(
    r"tl\.load\((?P<pointer>\w+) \+ (?P<place>.+?)(?:, mask=(?P<mask>.+?))?(?:, other=(?P<other>.+?))?(?:, \w+=\S+)*\)$"
)
VIEW = re.compile(r": \w+\[(?P<shape>[^]]*)\] = (?P<code>view \S+ \{index = \[(?P<index>d\d+(?:, d\d+)*)\]\})")
Data = Mapping[str, Any]  # plain data of a part of the page


def walk(trace: Trace, stages: Sequence[Data], passes: Sequence[Data], player: Data | None) -> list[dict[str, Any]]:
    """Returns the steps of the guided walk, a tour of the page through all stages of a program.

    The guided walk has no steps if the program was loaded from the text of a stage after the graph.
    """
    texts = {s["name"]: s["text"] for s in stages if "text" in s}
    if "graph" not in trace.stages or (node := followed(trace, texts)) is None:
        return []
    return list(_Walk(trace, node, texts, passes, player).steps())


def followed(trace: Trace, stages: Iterable[str]) -> int | None:
    """Returns the number of the graph node that the guided walk follows from stage to stage. If the graph computes
    nothing, returns None.
    """
    lines = [[nodes for nodes, how in zip(trace[s].lines, trace[s].how) if how == OWN] for s in stages]

    def worth(k: int) -> tuple[int, int, int]:
        op = trace.nodes[k].op
        liking = 3 if op == "contract" else 2 if op in FUNCTIONS else op.startswith(("reduce", "scan"))
        return sum(any(k in nodes for nodes in own) for own in lines), int(liking), k

    made = [k for k, n in enumerate(trace.nodes) if n.op != "input" and n.spans]
    found = [k for k in made if trace.nodes[k].op not in MOVES] or made
    return max(found, key=worth, default=None)


class _Walk:
    """The data of a guided tour that follows one graph node through all stages."""

    def __init__(
        self, trace: Trace, node: int, texts: Mapping[str, str], passes: Sequence[Data], player: Data | None
    ) -> None:
        self.trace, self.node, self.texts, self.passes, self.player = trace, node, texts, passes, player
        self.kernels: Sequence[Kernel] = trace.compilation.value("kernels").kernels
        programs = list(trace.compilation.value("tile.masked"))
        self.program = next((p for p in programs if self._computes(p.ops())), programs[0])  # computes the graph node
        accesses = [op for op in self.program.ops() if isinstance(op, (Load, Store))]
        self.store = next(op for op in accesses if isinstance(op, Store))
        loads = [op for op in accesses if isinstance(op, Load)]
        roles = {a.name: a.role for a in self.program.axes}
        along = {op: {roles.get(name) for name in op.indexed_by} for op in loads}
        # the load that is drawn: preferably along the axis of a loop, else along an axis that one block covers
        self.load = max(loads, key=lambda op: ("loop" in along[op], "whole" in along[op], len(op.index)), default=None)
        tests = [(op, _conditions(op)) for op in accesses]
        # the last axis that a mask tests
        self.tested = next((a for a in reversed(self.program.axes) if any(a.name in of for _, of in tests)), None)
        masked = [op for op, of in tests if self.tested and self.tested.name in of]
        self.masked = max(masked, key=lambda op: len(op.index), default=None)  # an access whose mask tests this axis

    def _computes(self, ops: Iterable[Op]) -> bool:
        return any(self.node in self.trace.of(op.spans) for op in ops)

    # ---- steps -------------------------------------------------------------------------------

    def _shown(self, panes: Sequence[str]) -> bool:
        """Checks whether both panes of a step exist and show different texts."""
        there = {*self.texts, *OTHER_PANES} - ({"player"} if self.player is None else set())
        before, after = (self.texts.get(pane) for pane in panes)
        return there >= set(panes) and (before is None or before != after)

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yields each step of the walk whose two panes exist on the page. The texts of the two panes must differ."""
        facts = self._facts()
        drawings = {
            "fusion": self._fusion(),
            "grid": self._array(self.store),
            "tile": self.load and self._array(self.load),
            "mask": self.masked and self.tested and {**self._array(self.masked), "tested": self.tested.name},
        }
        for step in STEPS:
            kind, panes = step.get("sketch", ""), step["panes"]
            drawing = drawings.get(kind)
            if not self._shown(panes) or (kind == "tile" and drawing is None):
                continue
            access = {"load": self.load, "masked": self.masked}.get(step.get("names"))
            rows = [self._rows(pane, access) for pane in panes]
            named = [self.texts[panes[1]].split("\n")[k].partition(" {")[0] for k in rows[1]]
            text = f"{ABOUT.get(step.get('about', panes[1]), '')} {_filled(step['text'], facts | {'named': named})}".strip()
            sketch = drawing and {"kind": kind, "caption": _filled(step["caption"], facts), **drawing}
            marks = sorted({self.node}.union(self.trace.of(access.spans) if access else ()))
            yield {"title": step["title"], "panes": panes, "text": text, "marks": marks, "rows": rows, "sketch": sketch}

    def _facts(self) -> dict[str, Any]:
        """Returns the values for the placeholders in the texts of guided_walk.toml."""
        gone_through = {pane for step in STEPS for pane in step["panes"]}
        triton = self.texts["triton"].split("\n")
        views = VIEW.finditer(self.texts["graph.simplified"])
        loaded_axes = [a for a in self.program.axes if self.load and a.name in self.load.indexed_by]
        return vars(self) | {
            "terms": WORDS["terms"],
            "stages": [f"`{s}`" for s in self.texts if s in gone_through],
            "skipped": [f"`{s}`" for s in self.texts if s not in gone_through],
            "broadcast": next((view for view in views if view["shape"].count(",") > view["index"].count(",")), None),
            "simplified": self._changes("graph.specialised", "graph.simplified"),
            "targeted": self._changes("tile.masked", "tile.target"),
            "operations": sum(len(operations(k)) for k in self.kernels),
            "grid": list(map(_part, self.program.grid)),
            "count": _count(self.program.grid),
            "part": list(map(_part, loaded_axes)) or ["one element"],
            "mask": comparison(_conditions(self.masked)[self.tested.name]) if self.tested else "",
            "neutral": self._neutral(),
            "spelled": next(filter(None, (LOADED.search(triton[k]) for k in self._rows("triton", self.load))), None),
        }

    def _changes(self, before: str, after: str) -> list[tuple[str, str]]:
        """Returns the passes between two stages that changed the program, each with a description."""
        at = {p["stage"]: k for k, p in enumerate(self.passes)}
        between = self.passes[at[before] + 1 : at[after] + 1]
        changed = [p for p in between if any(not renumbered for *_, renumbered in p["patch"])]
        return [(p["name"], _reason(p)) for p in changed]

    def _neutral(self) -> list[str]:
        """Returns texts about the values of masked elements, such as "`0.0`, which changes no sum"."""
        ops = list(self.program.ops())
        values = [op.other for op in ops if isinstance(op, Load) and _conditions(op) and op.other]
        chosen = [op.args for op in ops if isinstance(op, Compute) and op.op == "where"]
        values += [c.value for test, _, c in chosen if isinstance(test, Inside) and isinstance(c, Constant)]
        return [f"`{value}`, which changes no {NEUTRAL[value]}" for value in dict.fromkeys(values) if value in NEUTRAL]

    def _rows(self, stage: str, access: Access | None) -> list[int]:
        """Returns the indices of the lines that show a given load or store."""
        if access is None or stage not in ("kernels", "tile", "tile.masked", "tile.target", "triton"):
            return []
        value = self.trace.compilation.value("tile.target" if stage == "triton" else stage)
        kernel = next(k for k in (value.kernels if isinstance(value, Plan) else value) if k.name == self.program.name)
        ops = kernel.body if isinstance(kernel, Kernel) else kernel.ops()
        same = [op for op in ops if isinstance(op, type(access)) and op.buffer.name == access.buffer.name]
        # the access itself, or else the most similar access to the same array
        shown = max(same, key=lambda op: (op is access, op.index == access.index, op.mask == access.mask))
        if stage == "triton":
            ops_of_lines = line_ops(self.trace.compilation.value("triton")).items()
            return [number - 1 for number, op in ops_of_lines if op is shown]
        lines = plan_lines(value) if isinstance(value, Plan) else programs_lines(value)
        return [k for k, (_, item) in enumerate(lines) if item is shown]

    # ---- drawings ------------------------------------------------------------------------------

    def _fusion(self) -> dict[str, Any]:
        kernels = [
            {"name": k.name, "ops": [{"op": operator(op), "here": self._computes([op])} for op in operations(k)],
             "reads": _names(k, Load), "writes": _names(k, Store)}
            for k in self.kernels
        ]  # fmt: skip
        here = next((k for k, kernel in enumerate(self.kernels) if self._computes(kernel.body)), 0)
        return {"kernels": kernels, "here": here}

    def _array(self, access: Access) -> dict[str, Any]:
        """Returns data to draw the array that an access reads or writes."""
        names = [{s.name for s in index.symbols()} for index in access.index]
        axes = [[a for a in self.program.axes if a.name in own] for own in names]
        dims = list(map(_dim, access.buffer.shape, axes))
        return {"name": access.buffer.name, "dims": dims or [_dim(ONE, ())]}  # an array without axes is one element


def _filled(template: str, facts: Data) -> str:
    """Returns a text of guided_walk.toml with its placeholders filled in."""
    return " ".join(TEMPLATES.from_string(template).render(facts).split())  # line breaks become spaces


def _part(a: TileAxis) -> str:
    """Returns a text about the blocks of an axis, such as `64 of 512 along i`."""
    return f"{'all' if a.role == 'whole' else f'{a.block} of'} {a.extent} along {a.name}"


def _reason(p: Data) -> str:
    """Returns what a pass did, as text."""
    rules = [r for r in p["rules"] if r["about"]][:2]
    done = [f"{r['about'][0].lower()}{r['about'][1:-1]} (`{r['name']}`, {r['count']}×)" for r in rules]
    # without rules: the description of the pass
    return f"{'; '.join(done)}." if done else p["about"].partition(": ")[2]


def _conditions(access: Access | None) -> dict[str, Dim]:
    """Returns the condition for each axis in the mask of a load or store."""
    found = access.mask.conditions if access and access.mask else ()
    return {s.name: c for c in found for s in c.symbols()}


def _dim(extent: Dim, axes: Sequence[TileAxis]) -> dict[str, Any]:
    along = {"axis": "", "role": "whole", "block": 0, "lanes": 0}
    if len(axes) == 1:
        along = {"axis": axes[0].name, "role": axes[0].role, "block": axes[0].block, "lanes": axes[0].lanes}
    return {"extent": str(extent), "size": extent.constant, **along}


def _count(grid: Sequence[TileAxis]) -> str:
    """Returns the number of grid programs as text, such as `64 × 8` or `ceil(M/4)`."""
    known = [str(a.tiles) if not a.tiles.symbols() or a.block == 1 else f"ceil({a.extent}/{a.block})" for a in grid]
    return " × ".join(n for n in known if n != "1") or "1"


def _names(kernel: Kernel, kind: type[Access]) -> list[str]:
    return list(dict.fromkeys(op.buffer.name for op in kernel.body if isinstance(op, kind)))
