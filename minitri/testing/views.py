"""Statements that move data, gather it, or create it.

Each method chooses values that fit, writes one statement and states the properties of its result (elementwise.py).
"""

import math
from functools import reduce
from itertools import pairwise

from minitri.base.types import DTYPES, promote
from minitri.testing.generator import HELPERS, Writer, require
from minitri.testing.values import ONE, Axis, Value, counted, sliced

SLICES = (":", "1:", ":-1", "::-1", "::2", "1:3", "-2:", "5:1:-2", "::-3", "0", "-1", "None", ":2")


class Views(Writer):
    def _transpose(self) -> Value:
        x = self.pick(lambda v: v.rank > 1)
        turned, last = tuple(x.axes_from_the_last), (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        order = self.choose([turned, last, (*range(1, x.rank), 0)])
        form = self.choose(("permute_dims({}, {})", "{}.T" if order == turned else "permute_dims({}, {})"))
        if order == last:
            form = self.choose((form, "{}.mT", "matrix_transpose({})"))
        return self.add(form.format(x.name, order), x.dtype, [x.axes[k] for k in order], x.exact, x.reach)

    def _slice(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        items: list[str] = []
        axes: list[Axis] = []
        for a in x.axes:
            form = self.choose(SLICES)
            if form in ("0", "-1") and not a.size:
                form = ":"
            if form == "None":
                items += ["None", ":"]
                axes += [ONE, a]
                continue
            items.append(form)
            if ":" in form:
                axes.append(sliced(form, a))
        if self.chance(4) and items[-1] == ":":
            items[-1] = "..."
        return self.add(f"{x.name}[{', '.join(items)}]", x.dtype, axes, x.exact, x.reach)

    def _reshape(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        sizes = [self.size(x, j) for j in range(x.rank)]
        forms = [(f"reshape({x.name}, -1)", [Axis("", math.prod(a.size for a in x.axes))])]
        for k, (a, b) in enumerate(pairwise(x.axes)):
            first = f"({sizes[k]})" if "+" in a.text else sizes[k]
            shape = ", ".join([*sizes[:k], f"{first} * ({sizes[k + 1]})", *sizes[k + 2 :]])
            merged = [*x.axes[:k], counted(a.size * b.size, a, b), *x.axes[k + 2 :]]
            forms.append((f"reshape({x.name}, ({shape},))", merged))
        for k, a in enumerate(x.axes):
            for q in (q for q in (2, 3, 11) if a.size and a.size % q == 0):
                outer = counted(a.size // q, a)
                shape = ", ".join([*sizes[:k], outer.text or f"({sizes[k]}) // {q}", str(q), *sizes[k + 1 :]])
                split = [*x.axes[:k], outer, Axis(str(q), q), *x.axes[k + 1 :]]
                forms.append((f"{x.name}.reshape({shape})", split))
        text, axes = self.choose(forms)
        return self.add(text, x.dtype, axes, x.exact, x.reach)

    def _move(self) -> Value:
        """A call of flip, roll, expand_dims, squeeze, tril or triu."""
        x = self.pick(lambda v: v.rank > 0)
        k = self.choose(range(x.rank))
        forms = [f"flip({x.name}, axis={k})", f"roll({x.name}, {self.choose((1, -2, 5, 40))}, axis={k})"]
        forms += [f"flip({x.name})", "expand", f"roll({x.name}, 3)"]
        forms += [f"tril({x.name})", f"triu({x.name}, {self.choose((1, 0, -2))})"] if x.rank > 1 else []
        ones = [j for j, a in enumerate(x.axes) if a.text == "1"]
        forms += ["squeeze", "squeeze"] if ones else []
        form = self.choose(forms)
        axes = x.axes
        if form == "squeeze":
            k = self.choose(ones)
            form, axes = f"squeeze({x.name}, axis={k})", (*x.axes[:k], *x.axes[k + 1 :])
        if form == "expand":
            form, axes = f"expand_dims({x.name}, axis={k})", (*x.axes[:k], ONE, *x.axes[k:])
        return self.add(form, x.dtype, axes, x.exact, x.reach)

    def _broadcast(self) -> Value:
        x = self.pick(lambda v: v.rank < 4)
        lead = self._known_axis()
        axes = [lead, *(self._known_axis() if a.text == "1" and self.chance(2) else a for a in x.axes)]
        shape = ", ".join([a.text or self.size(x, k - 1) for k, a in enumerate(axes)])
        return self.add(f"broadcast_to({x.name}, ({shape},))", x.dtype, axes, x.exact, x.reach)

    def _known_axis(self) -> Axis:
        """An axis whose size the body of the program can write: a dimension or an integer."""
        named = [Axis(n, s) for n, s in self.sizes.items() if s <= 33]
        return self.choose([Axis("2", 2), *named, Axis("3", 3), ONE, Axis("17", 17), *named])

    def _pad(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        widths = [(self.choose((0, 1, 3)), self.choose((1, 0, 5))) for _ in x.axes]
        axes = [counted(a.size + b + c, a) if b + c else a for a, (b, c) in zip(x.axes, widths)]
        fill = self.choose(("", ", constant_values=1")) if x.kind != "b" else ""
        text = f"pad({x.name}, ({', '.join(map(str, widths))},){fill})"
        return self.add(text, x.dtype, axes, x.exact, x.reach + 1)

    def _concat(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        k = self.choose(range(x.rank))
        alike = [v for v in self.values if v.rank == x.rank]
        others = [v for v in alike if all(a.size == b.size for j, (a, b) in enumerate(zip(v.axes, x.axes)) if j != k)]
        parts = [x, *(self.choose(others) for _ in range(self.choose((1, 1, 2))))]
        dtype = reduce(promote, (DTYPES[p.dtype] for p in parts))
        joined = [p.axes[k] for p in parts]
        listed = ", ".join(p.name for p in parts)
        reach, exact = max(p.reach for p in parts), all(p.exact for p in parts)
        require(self.fits(reach, dtype.name))
        if len({a.size for a in joined}) == 1 and self.chance(3):
            axes = (*x.axes[:k], Axis(str(len(parts)), len(parts)), *x.axes[k:])
            return self.add(f"stack(({listed}), axis={k})", dtype.name, axes, exact, reach)
        axes = (*x.axes[:k], counted(sum(a.size for a in joined), *joined), *x.axes[k + 1 :])
        return self.add(f"concat([{listed}], axis={k})", dtype.name, axes, exact, reach)

    # ---- gathers and what comes from nowhere -----------------------------------------

    def _indices(self, axes: tuple[Axis, ...], extent: int) -> Value:
        """A new parameter of indices; some are negative, and now and then some are out of range."""
        dtype = self.choose(("i64", "i32", "u8"))
        wild = 2 if self.chance(5) else 0
        return self.array(dtype, axes, 0 if dtype == "u8" else -extent - wild, max(extent - 1, 0) + wild)

    def _gather(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        k = self.choose(range(x.rank))
        i = self._indices(self.axes(self.choose((1, 2, 0))), x.axes[k].size)
        axes = (*x.axes[:k], *i.axes, *x.axes[k + 1 :])
        item = i.name if not self.chance(4) or i.dtype == "u8" else f"abs({i.name})"
        forms = [f"{x.name}[{', '.join([*[':'] * k, item])}]", f"take({x.name}, {item}, axis={k})"]
        return self.add(self.choose(forms), x.dtype, axes, x.exact, x.reach)

    def _along(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        k = self.choose(x.axes_from_the_last)
        i = self._indices((*x.axes[:k], self.axis(33), *x.axes[k + 1 :]), x.axes[k].size)
        return self.add(f"take_along_axis({x.name}, {i.name}, axis={k - x.rank})", x.dtype, i.axes, x.exact, x.reach)

    def _one_hot(self) -> Value:
        x = self.pick(lambda v: v.kind in "iu" and v.rank < 3)
        classes = self._known_axis()
        return self.add(f"one_hot({x.name}, {classes.text})", "f32", (*x.axes, classes), True, 1)

    def _make(self) -> Value:
        a, b = self._known_axis(), self._known_axis()
        dtype = self.choose(("f32", "i32", "f16"))
        ways: list[tuple[str, str, tuple[Axis, ...]]] = [
            (f"arange({a.text})", "i64", (a,)), (f"eye({a.text}, {b.text})", "f32", (a, b)),
            (f"ones(({a.text}, {b.text}), dtype={dtype})", dtype, (a, b)), (f"arange({a.text}, dtype={dtype})", dtype, (a,)),
            (f"full(({a.text},), 2.5)", "f32", (a,)), ("arange(0, 2, 0.25)", "f32", (Axis("8", 8),)),
            (f"arange({a.text})[:, None] - arange({b.text})", "i64", (a, b)),
        ]  # fmt: skip
        text, dtype, axes = self.choose(ways)
        return self.add(text, dtype, axes, True, 130)

    def _like(self) -> Value:
        """Zeros, ones or a number, with the shape and dtype of a value, or of a given shape."""
        x = self.pick()
        a = self._known_axis()
        ways: list[tuple[str, str, tuple[Axis, ...]]] = [
            (f"zeros_like({x.name})", x.dtype, x.axes), (f"ones_like({x.name})", x.dtype, x.axes),
            (f"full_like({x.name}, 1)", x.dtype, x.axes), (f"zeros(({a.text}, 3))", "f32", (a, Axis("3", 3))),
        ]  # fmt: skip
        text, dtype, axes = self.choose(ways)
        return self.add(text, dtype, axes, True, 1)

    def _call(self) -> Value:
        """A call of another function of the module."""
        x = self.pick(lambda v: v.rank > 0 and v.dtype == "f32" and v.reach <= 1e10)
        name = self.choose(tuple(HELPERS))
        axes = x.axes[:-1] if name == "rowwise" else x.axes
        return self.add(f"{name}({x.name})", "f32", axes, x.exact and name == "scaled", 130 * x.reach)
