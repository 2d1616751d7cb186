"""Finds the array elements that one kernel must compute or load.

    relu(x @ w).mT at [i, j]  →  relu at [j, i]  →  x @ w at [j, i]  →  x at [j, r], w at [r, i]

The class `Indexing` takes the graph nodes that one kernel computes, and the roots among these nodes. Roots are the
nodes whose values the kernel stores. The kernel computes only the nodes of its part of the graph, and loads all other
values from memory. An `Indexing` has the axes of the kernel, and the demands (needed indices) of each node. A demand is
an index at which the kernel needs a node, such as `x[i, r]`. The file minitri/kernels/lower_graph.py makes the ops of a
kernel from the demands (needed indices). The file minitri/optimize/fusion/one_kernel.py decides whether the nodes of a
part of the graph can be one kernel.

The one idea: the index of a needed element of a result determines which elements of the operands are needed. The index
of a stored node consists of new axes of the kernel, such as `[i, j]`. A View reads its operand at another index: `x.mT`
at `[i, j]` reads `x` at `[j, i]`. The operand of a Reduce has additional axes in its index: `sum(x, axis=1)` at `[i]`
needs `x` at `[i, r]` for all r. A Scan at `[i]` needs its operand at all indices up to i. A Gather reads its operand at
a computed index: `x[k]` at `[i]` reads `x` at `[k[i]]`.

If a kernel has only one operation, each dimension of the result and each summed dimension gets a new axis. If a kernel
has several operations, minitri/optimize/fusion/shared_axes.py decides which axes the operations share.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, count

from minitri.base import dims, intervals
from minitri.base.dims import Dim, Symbol, axis_names
from minitri.base.nodes import Record
from minitri.base.resource_limits import check_time
from minitri.base.symbolic_minmax import Allows, where_present
from minitri.graph import ir
from minitri.graph.ir import Node, axis_symbol, children, postorder

MAX_DEMANDS = 8  # indices at which one node may be computed
MAX_VIEWS = 32  # indices at which one view, gather or concat may be needed
MAX_GUARDS = 16  # guards of one demand; each guard is tested for every element
FEW = 9  # an axis has few positions if it has fewer than this; most programs stack fewer arrays
PARALLEL, REDUCED = "ijklhgfe", "rstuvw"  # names of axes: the letters, then e8, e9, … and w6, w7, …
COMPUTE = (ir.Apply, ir.Reduce, ir.Scan, ir.Contract)


class NotOneKernel(Exception):
    """The error for nodes that one kernel cannot compute: the `reason`, and the `nodes` that must be stored in memory."""

    def __init__(self, reason: str, *nodes: Node) -> None:
        super().__init__(reason)
        self.reason, self.nodes = reason, nodes


class Demand(Record):
    """The index of one element that a kernel needs, with guards (conditions under which the kernel needs the element).

    A guard is an integer expression that stands for the condition `guard >= 0`.
    """

    index: tuple[Dim, ...]
    guards: tuple[Dim, ...] = ()


def free_axis(used: Container[str], letters: str) -> str:
    """Returns the first axis name that a kernel does not use yet."""
    numbered = (f"{letters[-1]}{k}" for k in count(len(letters)))
    return next(n for n in chain(letters, numbered) if n not in used)


class AxisRanges:
    """Simplifies indices and guards with the ranges of the axes: 0 <= i < M.

        simplify((4*i + 1) // 4)                i
        open_guards([i, i - 2])                 [i - 2], because i is never negative
        narrowed([i - 2], [1 - i])              None, because no i is both at least 2 and at most 1

    A guard is an integer expression that must be >= 0. `axes` maps each axis to its extent; the caller may add axes
    later. `allows(symbol, n)` says whether the size `symbol` can be `n`.
    """

    def __init__(self, axes: Mapping[str, Dim], allows: Allows) -> None:
        self.axes, self.allows = axes, allows
        self._simple: dict[tuple[Dim, tuple[Dim, ...]], Dim] = {}
        self._closed: dict[Dim, bool] = {}

    @property
    def ranges(self) -> intervals.Ranges:
        return {Symbol(a, "axis"): (dims.ZERO, e - 1) for a, e in self.axes.items()}

    def nonempty(self, d: Dim) -> frozenset[Symbol]:
        """Returns the symbolic sizes of the axes in an expression. Each of these sizes is at least 1, because the
        expression is only computed for an index of the axis. The kernel may loop over other axes that are empty.
        """
        sizes = (self.axes[s.name].atom for s in d.symbols() if s.kind == "axis" and s.name in self.axes)
        return frozenset(size for size in sizes if isinstance(size, Symbol))

    def simplify(self, d: Dim, guards: Iterable[Dim] = ()) -> Dim:
        """Returns a simpler expression that equals `d` whenever each index in `d` is within the range of its axis, and
        all guards are >= 0. The simplified form of each expression is cached, and stays cached when axes are added.
        """
        if all(isinstance(a, Symbol) for a in d.atoms()):
            return d
        key = d, about(guards, [d])
        if key not in self._simple:
            ranges = intervals.within(self.ranges, key[1])
            present = [self.axes[s.name] for s in d.symbols() if s.name in self.axes and s.kind == "axis"]
            simple = intervals.joined(intervals.simplify(d, ranges, self.nonempty(d)), ranges)
            self._simple[key] = where_present(simple, present, self.allows)
        return self._simple[key]

    def open_guards(self, conditions: Sequence[Dim]) -> tuple[Dim, ...]:
        """Returns the expressions in `conditions` that could be negative at some index."""
        for c in conditions:
            if c not in self._closed:
                self._closed[c] = intervals.proves_nonnegative(c, self.ranges, self.nonempty(c))
        return tuple(c for c in conditions if not self._closed[c])

    def narrowed(self, guards: tuple[Dim, ...], conditions: Sequence[Dim]) -> tuple[Dim, ...] | None:
        """Returns all `guards`, and the `conditions` that the guards do not imply. Guards and conditions are integer
        expressions. Each of these expressions must be >= 0. Returns None if the guards and the conditions contradict
        each other.
        """
        for c in self.open_guards(conditions):
            rooms = [room for g in guards if (room := (c - g).constant) is not None]
            sums = [total for g in guards if (total := (c + g).constant) is not None]
            if any(total < 0 for total in sums) or intervals.proves_nonnegative(-c - 1, self.ranges, self.nonempty(c)):
                return None
            if not any(room >= 0 for room in rooms):
                guards = merged(guards, [c])
        return guards


def merged(a: tuple[Dim, ...], b: Iterable[Dim]) -> tuple[Dim, ...]:
    """Returns the expressions of the lists `a` and `b` without duplicates."""
    return tuple(dict.fromkeys((*a, *b)))


class Indexing:
    """The axes of one kernel. For each node, an `Indexing` also has the indices at which the kernel needs the node.
    The file minitri/kernels/lower_graph.py makes a kernel from an `Indexing`.

    Raises NotOneKernel if the kernel needs a node at too many different indices.
    """

    def __init__(self, inside: frozenset[Node], roots: Sequence[Node], allows: Allows) -> None:
        """Finds, for each node, the indices of the elements that the kernel needs. The kernel computes the nodes
        `inside`, and stores the nodes `roots`.

        `allows(symbol, n)` says whether the size `symbol` can be `n`.
        """
        self.inside, self.roots = inside, roots
        self.axes: dict[str, Dim] = {}
        self.ranges = AxisRanges(self.axes, allows)
        self.reduced: set[str] = set()
        self.demands: dict[Node, dict[Demand, None]] = defaultdict(dict)  # an ordered set for each node
        self.stores: list[tuple[Node, Demand]] = []
        self.over: dict[tuple[Node, Demand], tuple[str, ...]] = {}  # the axes of a reduction
        self.picked: dict[Symbol, tuple[Node, Demand]] = {}
        self._pick_names: dict[tuple[Node, Demand], str] = {}
        self._too_often: list[Node] = []
        self._pulled: dict[tuple[Node, Demand], list[tuple[Node, Demand]]] = {}
        self.order = self._order()
        for node in reversed(self.order):
            self._visit(node)
        if self._too_often:
            reason = f"one value would be computed more than {MAX_DEMANDS} times, or under {MAX_GUARDS} conditions"
            raise NotOneKernel(reason, *self._too_often)

    # ---- visiting nodes --------------------------------------------------------------

    def is_leaf(self, node: Node) -> bool:
        return isinstance(node, ir.Input) or (isinstance(node, COMPUTE) and node not in self.inside)

    def below(self, node: Node) -> tuple[Node, ...]:
        return () if self.is_leaf(node) else children(node)

    def _order(self) -> list[Node]:
        return postorder(self.roots, self.below)

    def _visit(self, node: Node) -> None:
        if node in self.roots:
            demand = self._root_demand(node)
            self.demands[node][demand] = None
            self.stores.append((node, demand))
        self._limit(node)
        for demand in self.demands.get(node, ()):
            if isinstance(node, ir.Scan) and not self.is_leaf(node):
                self.reduced.add(self.scan_axis(node, demand)[0])
            for operand, below in self.pull(node, demand):
                self.demands[operand][below] = None

    def scan_axis(self, node: ir.Scan, demand: Demand) -> tuple[str, Dim]:
        """Returns the axis of a scan (such as a running sum), and the first index along this axis that the scan
        computes.

        For example, the exclusive sum `pad(cumulative_sum(x[:-1]), ((1, 0),))` needs the element `i - 1` of a running
        sum. For i = 0, the element `i - 1` does not exist, so the scan starts at i = 1.
        """
        place, extent = demand.index[node.axis], node.shape[node.axis]
        along = next((s for s in place.symbols() if s.kind == "axis"), None)
        shift = dims.axis(along.name) - place if along is not None else place
        inside = self.ranges.narrowed(demand.guards, [place, extent - 1 - place]) == demand.guards
        if along is None or axis_names([shift]) or dims.sign(shift) not in (0, 1) or not inside:
            raise NotOneKernel("a running sum is needed at permuted places", node)
        return along.name, shift

    def _scanned(self, node: ir.Scan, demand: Demand) -> tuple[Dim, ...]:
        """Returns the guards of a scan's operand: `cumulative_sum(x)[1:]` needs x[0], but no sum at index 0."""
        along, _ = self.scan_axis(node, demand)
        varying = [g for g in demand.guards if any(s.kind == "value" or s.name == along for s in g.symbols())]
        kept = tuple(g for g in demand.guards if g not in varying)
        inside = [c for d, extent in zip(demand.index, node.shape) for c in (d, extent - 1 - d)]
        own = self.ranges.narrowed(kept, inside) or kept
        return merged(tuple(g for g in demand.guards if g in own), own)

    def _limit(self, node: Node) -> None:
        """Marks a node to be stored in memory if the kernel needs the node at too many indices."""
        most = MAX_DEMANDS if isinstance(node, COMPUTE) else MAX_VIEWS
        known = self.demands.get(node, {})
        # an index with too many guards (conditions) counts as too many indices
        guarded = isinstance(node, (*COMPUTE, ir.Gather, ir.Concat)) and any(len(d.guards) > MAX_GUARDS for d in known)
        if (len(known) > most or guarded) and not self.is_leaf(node):
            self._too_often.append(node)
            # One index without guards: at many indices, the operands would be needed at many indices too.
            self.demands[node] = {Demand(next(iter(known)).index): None}

    # ---- axes ------------------------------------------------------------------------

    def _fresh(self, extent: Dim, letters: str) -> str:
        name = free_axis(self.axes, letters)
        self.axes[name] = extent
        return name

    def _plain(self, node: Node, demand: Demand) -> bool:
        along = [(plain_axis(d), e) for d, e in zip(demand.index, node.shape) if e != 1]
        return len({n for n, _ in along}) == len(along) and all(n and self.axes[n] == e for n, e in along)

    def _root_demand(self, node: Node) -> Demand:
        """Returns an index such as `[i, j]` for a stored node, with one new axis for each dimension."""
        # a dimension of size 1 has the index 0 instead of an axis
        return Demand(tuple(dims.ZERO if e == 1 else dims.axis(self._fresh(e, PARALLEL)) for e in node.shape))

    def _choose(self, node: ir.Reduce | ir.Contract, demand: Demand, extents: Sequence[Dim]) -> tuple[str, ...]:
        """Returns the reduced axes of a reduction or a matrix product."""
        over = self.over[node, demand] = self._axes_over(node, demand, extents)
        self.reduced.update(over)
        return over

    def _axes_over(self, node: ir.Reduce | ir.Contract, demand: Demand, extents: Sequence[Dim]) -> tuple[str, ...]:
        return tuple(self._fresh(extent, REDUCED) for extent in extents)

    def column_axis(self, d: Dim) -> str | None:
        """Returns the name of a matrix product's column axis. `d` is the product's last index, such as `j` in `[i, j]`.
        Returns None if `d` is not a single axis.
        """
        return plain_axis(d)

    # ---- the index of each operand ---------------------------------------------------

    def pull(self, node: Node, demand: Demand) -> list[tuple[Node, Demand]]:
        """Returns the elements of a node's operands from which the element `demand` of the node is computed. The result
        is cached for each pair of node and needed element (demand).
        """
        key = node, demand
        if key not in self._pulled:
            self._pulled[key] = [(n, self._unguarded(n, below)) for n, below in self._pull(node, demand)]
        return self._pulled[key]

    def _unguarded(self, node: Node, demand: Demand) -> Demand:
        """Removes guards (conditions) such as `j >= 2` if the element's index, such as `x[i]`, has no axis `j`."""
        if not demand.guards or not self._plain(node, demand):
            return demand
        # a program computes all positions of a short last axis, so the guards on this axis are removed
        last = axis_names(d for _, store in self.stores for d in store.index[-1:])
        # A program usually has one index of a short axis, so a guard can save a load: a program that stores elements of
        # `y` in `stack((x, y), axis=0)` does not load `x`.
        few = {a for a in self.parallel if (self.axes[a].constant or FEW) < FEW and a not in last}
        # if `x[i]` is needed only where `j >= 2`, the kernel loads `x[i]` once for all `j`, without this guard
        own = {s for d in demand.index for s in d.symbols()} | {Symbol(a, "axis") for a in few}
        kept = tuple(g for g in demand.guards if all(s in own for s in g.symbols() if s.kind != "size"))
        return Demand(demand.index, kept)

    def _pull(self, node: Node, demand: Demand) -> list[tuple[Node, Demand]]:
        if self.is_leaf(node):
            return []
        check_time()
        index, guards = demand.index, demand.guards
        match node:
            case ir.Apply():
                return [(a, demand) for a in node.args]
            case ir.View():
                return [(node.x, Demand(self.mapped(node.index, index, guards), guards))]
            case ir.Gather():
                picks = [(p, demand) for p in node.picks]
                where, inside = self.gathered(node, demand)
                return [*picks, (node.x, Demand(where, merged(guards, inside)))]
            case ir.Concat():
                return self.pieces(node, demand)
            case ir.Reduce():
                over = self._choose(node, demand, [node.x.shape[k] for k in node.axes])
                return [(node.x, Demand(with_axes(index, node.axes, over), guards))]
            case ir.Scan():
                return [(node.x, Demand(index, self._scanned(node, demand)))]
            case ir.Contract():
                (k,) = self._choose(node, demand, [node.a.shape[-1]])
                rows, columns = (*index[:-1], dims.axis(k)), (*index[:-2], dims.axis(k), index[-1])
                a, b = (Demand(where, about(guards, where)) for where in (rows, columns))
                return [(node.a, a), (node.b, b)]
        return []

    def mapped(
        self, exprs: Iterable[Dim], index: Sequence[Dim], guards: Iterable[Dim] = (), picks: Mapping[Symbol, Dim] = {}
    ) -> tuple[Dim, ...]:
        """Replaces the symbols `d0`, `d1`, … in the index expressions `exprs` by the entries of `index`.

        Example: for the index `[i, j + 1]`, the function replaces `[d1, d0]` by `[j + 1, i]`. In the index expressions
        of a gather, a symbol such as `@0` stands for an index that is read from an array. The argument `picks` maps
        each symbol such as `@0` to its replacement. The result is right only where all `guards` are >= 0.
        """
        env = {axis_symbol(k): d for k, d in enumerate(index)} | {**picks}
        return tuple(self.ranges.simplify(d.substitute(env), guards) for d in exprs)

    def gathered(self, node: ir.Gather, demand: Demand) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """Returns the index at which a gather reads, and guards (conditions) that keep this index inside the array."""
        picks = {Symbol(f"@{k}", "value"): dims.value(self._pick_name(p, demand)) for k, p in enumerate(node.picks)}
        where = self.mapped(node.index, demand.index, demand.guards, picks)
        return where, self.ranges.open_guards(gather_guards(node, where))

    def _pick_name(self, p: Node, demand: Demand) -> str:
        """Returns the name of the symbol for a computed index of a gather."""
        # each computed index has its own symbol
        name = self._pick_names.setdefault((p, demand), f"p{len(self.picked)}")
        self.picked[Symbol(name, "value")] = (p, demand)
        return name

    def pieces(self, node: ir.Concat, demand: Demand) -> list[tuple[Node, Demand]]:
        """Finds out which operands of a concat may contain a certain element of the result. For each operand, the
        function returns the index at which the operand may contain the element. Each operand also comes with guards:
        conditions that test whether the operand contains the element.
        """
        out: list[tuple[Node, Demand]] = []
        offset = dims.ZERO
        for part in node.parts:
            extent = part.shape[node.axis]
            place = self.ranges.simplify(demand.index[node.axis] - offset)
            guards = self.ranges.narrowed(demand.guards, [place, self.ranges.simplify(extent - 1 - place)])
            index = (*demand.index[: node.axis], place, *demand.index[node.axis + 1 :])
            if guards is not None:
                out.append((part, Demand(index, guards)))
            offset = offset + extent
        return out or [(node.parts[-1], Demand(demand.index, demand.guards))]  # all parts are empty

    @property
    def parallel(self) -> list[str]:
        return [a for a in self.axes if a not in self.reduced]

    def axis_order(self) -> list[str]:
        """Returns the names of the axes in the order of the kernel: parallel axes first, then reduced axes.

        In a kernel with a matrix product, the order is: row axis, reduced axes, column axis. If the reduced axis k is
        in the middle, the tiles of the factors have the axes [row, k] and [k, column], as `tl.dot` requires.
        """
        reduced = [a for a in self.axes if a in self.reduced]
        if not any(isinstance(n, ir.Contract) and not self.is_leaf(n) for n in self.demands):
            return [*self.parallel, *reduced]
        *others, row, column = self.parallel
        return [*others, row, *reduced, column]


def plain_axis(d: Dim) -> str | None:
    """Returns the name of the axis if the index `d` is just one axis, such as `i`. Returns None for an index that is
    not a single axis, such as `i + 1`.
    """
    atom = d.atom
    return atom.name if isinstance(atom, Symbol) and atom.kind == "axis" else None


def about(guards: Iterable[Dim], index: Sequence[Dim]) -> tuple[Dim, ...]:
    """Returns the guards (conditions) that share an axis or a computed value with `index`.

    For example, a matrix product loads its first factor `a[i, r]` once for all columns `j`. The guard `j >= 2` contains
    neither `i` nor `r`, so the guard is left out.
    """
    own = {s for d in index for s in d.symbols()}
    return tuple(g for g in guards if own & {s for s in g.symbols() if s.kind != "size"})


def gather_guards(node: ir.Gather, where: Sequence[Dim]) -> list[Dim]:
    """Returns the guards (conditions) of a gather: every index that the gather computes must be inside the array."""
    picked = [(d, e) for d, e in zip(where, node.x.shape) if any(s.kind == "value" for s in d.symbols())]
    return [guard for d, extent in picked for guard in (d, extent - 1 - d)]


def with_axes(index: Sequence[Dim], axes: Sequence[int], names: Sequence[str]) -> tuple[Dim, ...]:
    """Returns the index of a reduction's operand: the index of the result, with the reduced axes inserted.

    For example, `with_axes((i, j), [1], ["r"])` returns `(i, r, j)`.
    """
    rest = iter(index)
    placed = dict(zip(axes, names))
    rank = len(index) + len(axes)
    return tuple(dims.axis(placed[k]) if k in placed else next(rest) for k in range(rank))
