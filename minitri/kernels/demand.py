"""Finds which element of which node a part of the graph needs.

    relu(x @ w).mT at [i, j]  →  relu at [j, i]  →  x @ w at [j, i]  →  x at [j, r], w at [r, i]

In: the nodes of one part, and its roots (nodes that must be stored). The part computes its own nodes and reads all
others from memory. Out: an `Indexing`, its named axes and its demands. minitri/kernels/builder.py turns them into ops.
minitri/kernels/one_kernel.py says whether the part can be one kernel.

The one idea: an index travels from the results to the operands. A root is demanded at fresh axes `[i, j]`. A View
demands its operand at its index map of those axes. A Reduce demands its operand with one more axis. A Gather demands
its operand with an index that is a value.

A reduction uses an existing axis of the part if one fits. That makes softmax one kernel; fusing over rows needs nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from minitri.base import dims
from minitri.base.dims import Dim, Symbol
from minitri.base.limits import check_time
from minitri.base.piecewise import Allows
from minitri.graph.ir import (  # fmt: skip
    Apply,
    Concat,
    Contract,
    Gather,
    Input,
    Node,
    Reduce,
    Scan,
    View,
    axis_symbol,
    operands,
    pick,
)
from minitri.kernels.axis_ranges import AxisRanges, merged

MAX_DEMANDS = 8  # how often one node may be computed at different indices
MAX_VIEWS = 32  # the same for one that is only moved, not computed
MAX_GUARDS = 16  # conditions under which one element is read; each of them is tested for each element
MAX_BUFFERS = 96
COMPUTE = (Apply, Reduce, Scan, Contract)


class NotOneKernel(Exception):
    """Why a part cannot be one kernel; `nodes` are the values to store so that it can."""

    def __init__(self, reason: str, *nodes: Node) -> None:
        super().__init__(reason)
        self.reason, self.nodes = reason, nodes


@dataclass(frozen=True, slots=True)
class Demand:
    """The element of a node that is needed: its index, and guards under which it is needed."""

    index: tuple[Dim, ...]
    guards: tuple[Dim, ...] = ()


class Indexing:
    """The demands of one part; made once, read by one_kernel.py and by builder.py. NotOneKernel if a value is
    needed at too many indices, or if the part reads too many arrays."""

    def __init__(self, inside: frozenset[Node], roots: Sequence[Node], allows: Allows = lambda symbol, n: True) -> None:
        """`allows`: which numbers the sizes can be."""
        self.inside, self.roots = inside, roots
        self.axes: dict[str, Dim] = {}
        self.ranges = AxisRanges(self.axes, allows)
        self.reduced: set[str] = set()
        self.demands: dict[Node, list[Demand]] = {}
        self.stores: list[tuple[Node, Demand]] = []
        self.over: dict[tuple[Node, Demand], tuple[str, ...]] = {}  # axes a reduction runs over
        self.picked: dict[Symbol, tuple[Node, Demand]] = {}
        self._pick_names: dict[tuple[Node, Demand], str] = {}
        self._too_often: list[Node] = []
        self._pulled: dict[tuple[Node, Demand], list[tuple[Node, Demand]]] = {}
        self.loop: str | None = None  # what reductions and products share: shared_loop.py sets these three
        self.held: set[str] = set()
        self.inner: set[str] = set()
        self.order = self._order()
        self._check_buffers()
        for node in reversed(self.order):
            self._visit(node)
        if self._too_often:
            reason = f"one value would be computed more than {MAX_DEMANDS} times, or under {MAX_GUARDS} conditions"
            raise NotOneKernel(reason, *self._too_often)

    # ---- walking ---------------------------------------------------------------------

    def is_leaf(self, node: Node) -> bool:
        return isinstance(node, Input) or (isinstance(node, COMPUTE) and node not in self.inside)

    def below(self, node: Node) -> tuple[Node, ...]:
        return () if self.is_leaf(node) else operands(node)

    def _order(self) -> list[Node]:
        order: list[Node] = []
        done: set[Node] = set()
        stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(self.roots)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
            elif node not in done:
                done.add(node)
                stack.append((node, True))
                stack.extend((o, False) for o in reversed(self.below(node)) if o not in done)
        return order

    def _visit(self, node: Node) -> None:
        if node in self.roots:
            demand = self._stored_demand(node) or self._root_demand(node)
            self._demand(node, demand)
            self.stores.append((node, demand))
        self._limit(node)
        for demand in self.demands.get(node, ()):
            if isinstance(node, Scan) and not self.is_leaf(node):
                self._run_along(node, demand)
            for operand, below in self.pull(node, demand, self.choose):
                self._demand(operand, below)

    def _run_along(self, node: Scan, demand: Demand) -> None:
        along = plain_axis(demand.index[node.axis])
        if along is None or self.axes[along] != node.shape[node.axis]:
            raise NotOneKernel("a running sum is needed at permuted places", node)
        self.reduced.add(along)

    def _demand(self, node: Node, demand: Demand) -> None:
        known = self.demands.setdefault(node, [])
        if demand not in known:
            known.append(demand)

    def _limit(self, node: Node) -> None:
        """A value that is needed at too many indices, or under too many conditions, is better stored. From here on it
        counts as needed at one index, without conditions."""
        most = MAX_DEMANDS if isinstance(node, COMPUTE) else MAX_VIEWS
        known = self.demands.get(node, [])
        guarded = isinstance(node, (*COMPUTE, Gather, Concat)) and any(len(d.guards) > MAX_GUARDS for d in known)
        if (len(known) > most or guarded) and not self.is_leaf(node):
            self._too_often.append(node)
            self.demands[node] = [Demand(known[0].index)]

    # ---- axes ------------------------------------------------------------------------

    def _fresh(self, extent: Dim, letters: str) -> str:
        used = len([a for a in self.axes if a[0] in letters])
        name = letters[used] if used < len(letters) else f"{letters[-1]}{used}"
        self.axes[name] = extent
        return name

    def _stored_demand(self, node: Node) -> Demand | None:
        """A demand that already stands at plain axes, so that storing costs no second computation."""
        for demand in self.demands.get(node, ()):
            if not demand.guards and self._plain(node, demand):
                return demand
        return None

    def _plain(self, node: Node, demand: Demand) -> bool:
        names = [plain_axis(d) for d, e in zip(demand.index, node.shape) if e != 1]
        fits = all(n is not None and self.axes[n] == e for n, e in zip(names, [e for e in node.shape if e != 1]))
        return fits and len(set(names)) == len(names)

    def _root_demand(self, node: Node) -> Demand:
        taken: list[str] = []
        index: list[Dim] = []
        for k, extent in enumerate(node.shape):
            if extent == 1:
                index.append(dims.ZERO)
                continue
            name = self._match(node, k, index, taken) or self._fresh(extent, "ijklhgfe")
            taken.append(name)
            index.append(dims.axis(name))
        return Demand(tuple(index))

    def _match(self, node: Node, k: int, index: list[Dim], taken: list[str]) -> str | None:
        """An existing axis for axis k of a further root: the one that reads what is read already."""
        candidates = [a for a, e in self.axes.items() if e == node.shape[k] and a not in taken]
        if len(candidates) < 2:
            return candidates[0] if candidates else None

        def full(name: str) -> Demand:
            rest = [a for a in self.axes if a not in taken and a != name]
            tail: list[Dim] = []
            for extent in node.shape[k + 1 :]:
                same = next((a for a in rest if self.axes[a] == extent), None)
                tail.append(dims.axis(same) if same and extent != 1 else dims.ZERO)
                rest = [a for a in rest if a != same]
            return Demand((*index, dims.axis(name), *tail))

        def fit(name: str) -> tuple[int, int]:
            met, new = self._met(node, full(name))
            return -new, met

        return max(candidates, key=fit)

    def choose(self, node: Reduce | Contract, demand: Demand, extents: Sequence[Dim]) -> tuple[str, ...]:
        """The axes a reduction runs over: existing ones that fit, best the axes that share loads."""
        key = (node, demand)
        if key not in self.over:
            kept = {s.name for d in demand.index for s in d.symbols()}
            chosen: list[str] = []
            kept |= self._sides()
            for k, extent in enumerate(extents):
                fitting = [a for a, e in self.axes.items() if e == extent and a not in kept and a not in chosen]
                score = self._score(node, demand, chosen, extents, k)
                best = max(fitting, key=score, default=None)
                chosen.append(best or self._fresh(extent, "rstuvw"))
            self.reduced.update(chosen)
            self.over[key] = tuple(chosen)
        return self.over[key]

    def _sides(self) -> set[str]:
        """The rows and columns of products: no reduction runs over them, unless one does already."""
        demands = [d for n, ds in self.demands.items() if isinstance(n, Contract) and not self.is_leaf(n) for d in ds]
        sides = {plain_axis(i) for d in demands for i in d.index[-2:]}
        return {a for a in sides if a is not None} - self.reduced

    def _score(
        self, node: Reduce | Contract, demand: Demand, chosen: list[str], extents: Sequence[Dim], k: int
    ) -> Callable[[str], tuple[int, bool]]:
        def score(name: str) -> tuple[int, bool]:
            if isinstance(node, Contract) or k + 1 < len(extents):
                return 0, name in self.reduced
            index = _with_axes(demand.index, node.axes, [*chosen, name])
            return self._shared(node.x, Demand(index, demand.guards)), name in self.reduced

        return score

    def _shared(self, node: Node, demand: Demand) -> int:
        """How many elements that this demand reads are demanded already."""
        return self._met(node, demand)[0]

    def _met(self, node: Node, demand: Demand, limit: int = 64) -> tuple[int, int]:
        """How many elements that this demand needs are demanded already (nothing below them is asked), and how
        many are not."""
        count = 0
        stack = [(node, demand)]
        seen: set[tuple[Node, Demand]] = set()
        while stack and len(seen) < limit:
            node, demand = stack.pop()
            if (node, demand) in seen:
                continue
            seen.add((node, demand))
            if demand in self.demands.get(node, ()):
                count += 1
            elif isinstance(node, Reduce) and not self.is_leaf(node):
                stack.extend(self._again(node, demand))
            elif not isinstance(node, (Contract, Scan, Gather)):
                stack.extend(self.pull(node, demand, _no_axes))
        return count, len(seen) - count

    def _again(self, node: Reduce, demand: Demand) -> list[tuple[Node, Demand]]:
        """What a reduction would need along axes that others run over already, if there are such."""
        over: list[str] = []
        for extent in (node.x.shape[k] for k in node.axes):
            over += [a for a in self.axes if a in self.reduced and a not in over and self.axes[a] == extent][:1]
        whole = len(over) == len(node.axes)
        return [(node.x, Demand(_with_axes(demand.index, node.axes, over), demand.guards))] if whole else []

    # ---- how each node passes an index on --------------------------------------------

    def pull(self, node: Node, demand: Demand, choose: Callable[..., tuple[str, ...]]) -> list[tuple[Node, Demand]]:
        """The demands that one demand of a node makes on its operands; found once."""
        key = node, demand
        if key not in self._pulled:
            found = self._pull(node, demand, choose)
            self._pulled[key] = [(n, self._unguarded(n, below)) for n, below in found]
        return self._pulled[key]

    def _unguarded(self, node: Node, demand: Demand) -> Demand:
        """Without the guards along axes that it lacks: there it is needed for some index anyway, and it
        lies in its array for all of them."""
        if not demand.guards or not self._plain(node, demand):
            return demand
        own = {s for d in demand.index for s in d.symbols()}
        kept = tuple(g for g in demand.guards if all(s in own for s in g.symbols() if s.kind != "size"))
        return Demand(demand.index, kept)

    def _pull(self, node: Node, demand: Demand, choose: Callable[..., tuple[str, ...]]) -> list[tuple[Node, Demand]]:
        if self.is_leaf(node):
            return []
        check_time()
        index, guards = demand.index, demand.guards
        env: dict[Symbol, Dim] = {axis_symbol(k): d for k, d in enumerate(index)}
        match node:
            case Apply():
                return [(a, demand) for a in node.args]
            case View():
                return [(node.x, Demand(self.mapped(node.index, env), guards))]
            case Gather():
                picks = [(p, demand) for p in node.picks]
                where = self.mapped(node.index, {**env, **self.pick_env(node, demand)})
                inside = self.ranges.open_guards(gather_guards(node, where))
                return [*picks, (node.x, Demand(where, merged(guards, inside)))]
            case Concat():
                return self.pieces(node, demand)
            case Reduce():
                over = choose(node, demand, [node.x.shape[k] for k in node.axes])
                return [(node.x, Demand(_with_axes(index, node.axes, over), guards))]
            case Scan():
                return [(node.x, demand)]
            case Contract():
                (k,) = choose(node, demand, [node.a.shape[-1]])
                rows, columns = (*index[:-1], dims.axis(k)), (*index[:-2], dims.axis(k), index[-1])
                a, b = (Demand(where, about(guards, where)) for where in (rows, columns))
                return [(node.a, a), (node.b, b)]
            case _:
                return []

    def mapped(self, index: Sequence[Dim], env: Mapping[Symbol, Dim]) -> tuple[Dim, ...]:
        return tuple(self.ranges.simplify(d.substitute(env)) for d in index)

    def pick_env(self, node: Gather, demand: Demand) -> dict[Symbol, Dim]:
        """`@k` becomes a symbol of its own for each value that is picked by."""
        env: dict[Symbol, Dim] = {}
        for k, p in enumerate(node.picks):
            atom = pick(k).atom
            assert isinstance(atom, Symbol)
            env[atom] = dims.value(self._pick_name(p, demand))
        return env

    def _pick_name(self, p: Node, demand: Demand) -> str:
        if (p, demand) not in self._pick_names:
            name = f"p{len(self.picked)}"
            self._pick_names[p, demand] = name
            self.picked[Symbol(name, "value")] = (p, demand)
        return self._pick_names[p, demand]

    def pieces(self, node: Concat, demand: Demand) -> list[tuple[Node, Demand]]:
        """Each part of a concat at its own index, guarded by being in that part; no part that the index is never in."""
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
        return out or [(node.parts[-1], Demand(demand.index, demand.guards))]  # of nothing

    @property
    def parallel(self) -> list[str]:
        return [a for a in self.axes if a not in self.reduced]

    def _check_buffers(self) -> None:
        leaves = [n for n in self.order if self.is_leaf(n)]
        middle = self._middle() if len(leaves) + len(self.roots) > MAX_BUFFERS else None
        if middle is not None:
            raise NotOneKernel(f"it would read {len(leaves)} arrays", middle)

    def _middle(self) -> Node | None:
        """A value half way, if the part is more than one operation."""
        compute = [n for n in self.order if n in self.inside and n is not self.roots[0]]
        return compute[len(compute) // 2] if compute else None


def plain_axis(d: Dim) -> str | None:
    """The name of the axis this index is, if it is no more than that."""
    atom = d.atom
    return atom.name if isinstance(atom, Symbol) and atom.kind == "axis" else None


def about(guards: Iterable[Dim], index: Sequence[Dim]) -> tuple[Dim, ...]:
    """The guards that name an axis or a value of this index. A factor of a product needs no others."""
    own = {s for d in index for s in d.symbols()}
    return tuple(g for g in guards if own & {s for s in g.symbols() if s.kind != "size"})


def gather_guards(node: Gather, where: Sequence[Dim]) -> list[Dim]:
    """A picked index must lie in its axis."""
    out: list[Dim] = []
    for d, extent in zip(where, node.x.shape):
        if any(s.kind == "value" for s in d.symbols()):
            out += [d, extent - 1 - d]
    return out


def _no_axes(node: Node, demand: Demand, extents: Sequence[Dim]) -> tuple[str, ...]:
    raise AssertionError("not through reductions")


def _with_axes(index: Sequence[Dim], axes: Sequence[int], names: Sequence[str]) -> tuple[Dim, ...]:
    """The index of a reduction's operand: the result's, with the reduced axes put back."""
    rest = iter(index)
    placed = dict(zip(axes, names))
    rank = len(index) + len(axes)
    return tuple(dims.axis(placed[k]) if k in placed else next(rest) for k in range(rank))
