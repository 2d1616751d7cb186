"""Which axes the operations of one part share.

    m[i] = max over r of x[i, r]        the sum takes the axis r, which the part already has: both
    s[i] = sum over r of exp(x - m)     read x[i, r], so softmax is one kernel

In: a part of a graph. Out: its demands, as minitri/kernels/demand.py makes them for one operation. A further result
and a further reduction take axes that the part already has, where they fit. Of several that fit they take those at
which most elements are demanded already.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from minitri.base import dims
from minitri.base.dims import Dim, Symbol
from minitri.base.piecewise import Allows
from minitri.graph.ir import Contract, Gather, Node, Reduce, Scan
from minitri.kernels.demand import Demand, Indexing, NotOneKernel, plain_axis, with_axes

MAX_BUFFERS = 96


class FusedIndexing(Indexing):
    """The demands of a part of several operations. NotOneKernel also if the part reads too many arrays.

    loop, held, inner   what reductions and products share: minitri/optimize/fusion/one_kernel.py sets these three
    transposed          the column of a product comes before its row: minitri/optimize/fusion/operand_order.py sets it
    """

    def __init__(self, inside: frozenset[Node], roots: Sequence[Node], allows: Allows = lambda symbol, n: True) -> None:
        self.loop: str | None = None
        self.held: Set[str] = set()
        self.inner: set[str] = set()
        self.transposed = False
        super().__init__(inside, roots, allows)

    def _order(self) -> list[Node]:
        order = super()._order()
        leaves = sum(map(self.is_leaf, order))
        compute = [n for n in order if n in self.inside and n is not self.roots[0]]
        if compute and leaves + len(self.roots) > MAX_BUFFERS:
            raise NotOneKernel(f"it would read {leaves} arrays", compute[len(compute) // 2])
        return order

    def axis_order(self) -> list[str]:
        if self.loop is not None and not self.held:  # no product has a column that stays
            return [*self.parallel, *(a for a in self.axes if a in self.reduced)]
        last = self.parallel[-2:] if self.transposed else []
        swapped = dict(zip(last, reversed(last)))
        return [swapped.get(a, a) for a in super().axis_order()]

    # ---- results -----------------------------------------------------------------------

    def _root_demand(self, node: Node) -> Demand:
        """A root stands where it is needed already, at plain axes, so that storing costs no second computation. Else it
        stands at axes that the part already has, where they fit."""
        for demand in self.demands.get(node, ()):
            if not demand.guards and self._plain(node, demand):
                return demand
        index: list[Dim] = []
        for k, extent in enumerate(node.shape):
            name = None if extent == 1 else self._match(node, k, index) or self._fresh(extent, "ijklhgfe")
            index.append(dims.axis(name) if name else dims.ZERO)
        return Demand(tuple(index))

    def _match(self, node: Node, k: int, index: list[Dim]) -> str | None:
        """An existing axis for axis k of a further root: the one that reads what is read already."""
        free = [a for a in self.axes if a not in map(plain_axis, index)]
        candidates = [a for a in free if self.axes[a] == node.shape[k]]
        if len(candidates) < 2:
            return candidates[0] if candidates else None

        def full(name: str) -> Demand:
            rest = [a for a in free if a != name]
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

    # ---- reductions --------------------------------------------------------------------

    def _axes_over(self, node: Reduce | Contract, demand: Demand, extents: Sequence[Dim]) -> tuple[str, ...]:
        """Existing axes that fit; axes that share loads come first."""
        kept = {s.name for d in demand.index for s in d.symbols()} | self._sides()
        chosen: list[str] = []
        for k, extent in enumerate(extents):
            fitting = [a for a, e in self.axes.items() if e == extent and a not in kept and a not in chosen]
            last = k + 1 == len(extents)
            shared = {a: self._shared(node, demand, [*chosen, a]) for a in fitting if last and isinstance(node, Reduce)}
            best = max(fitting, key=lambda a: (shared.get(a, 0), a in self.reduced), default=None)
            chosen.append(best or self._fresh(extent, "rstuvw"))
        return tuple(chosen)

    def column_axis(self, d: Dim) -> str | None:
        """Along the columns of a product in a shared loop the index is the loop's, perhaps from some column on."""
        walked = d.coefficient(Symbol(self.loop, "axis")) if self.loop is not None else None
        return self.loop if walked is not None and walked[0] == 1 else plain_axis(d)

    def _sides(self) -> set[str]:
        """The rows and columns of products: no reduction runs over them, unless one does already."""
        demands = [d for n, ds in self.demands.items() if isinstance(n, Contract) and not self.is_leaf(n) for d in ds]
        sides = {plain_axis(i) for d in demands for i in d.index[-2:]}
        return {a for a in sides if a is not None} - self.reduced

    def _shared(self, node: Reduce, demand: Demand, names: Sequence[str]) -> int:
        """How many elements that a reduction along these axes reads are demanded already."""
        return self._met(node.x, Demand(with_axes(demand.index, node.axes, names), demand.guards))[0]

    def _met(self, node: Node, demand: Demand, limit: int = 64) -> tuple[int, int]:
        """How many elements that this demand needs are demanded already (nothing below them is asked), and how
        many are not."""
        count, stack, seen = 0, [(node, demand)], set[tuple[Node, Demand]]()
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
                stack.extend(self.pull(node, demand))
        return count, len(seen) - count

    def _again(self, node: Reduce, demand: Demand) -> list[tuple[Node, Demand]]:
        """What a reduction would need along axes that others run over already, if there are such."""
        over: list[str] = []
        for extent in (node.x.shape[k] for k in node.axes):
            over += [a for a in self.axes if a in self.reduced and a not in over and self.axes[a] == extent][:1]
        whole = len(over) == len(node.axes)
        return [(node.x, Demand(with_axes(demand.index, node.axes, over), demand.guards))] if whole else []
