"""Statements that move data, gather it, or create it.

Each method picks values that fit, writes one statement and says what it gives (elementwise.py).
"""

from __future__ import annotations

import math

from minitri.base.types import DTYPES, promote
from minitri.testing.values import Axis, Value, same, sliced
from minitri.testing.writer import HELPERS, Writer


class Views(Writer):
    def _transpose(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 1)
        if x is None:
            return None
        order = self.choose(
            [tuple(reversed(range(x.rank))), (*range(x.rank - 2), x.rank - 1, x.rank - 2), (*range(1, x.rank), 0)]
        )
        form = self.choose(
            ("permute_dims({}, {})", "{}.T" if order == tuple(reversed(range(x.rank))) else "permute_dims({}, {})")
        )
        if order == (*range(x.rank - 2), x.rank - 1, x.rank - 2):
            form = self.choose((form, "{}.mT", "matrix_transpose({})"))
        return self.add(form.format(x.name, order), x.dtype, [x.axes[k] for k in order], x.exact, x.reach)

    def _slice(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        items: list[str] = []
        axes: list[Axis] = []
        for a in x.axes:
            form = self.choose(
                (":", "1:", ":-1", "::-1", "::2", "1:3", "-2:", "5:1:-2", "::-3", "0", "-1", "None", ":2")
            )
            if form in ("0", "-1"):
                form = form if a.size else ":"
            if form == "None":
                items += ["None", ":"]
                axes += [Axis("1", 1), a]
                continue
            items.append(form)
            if ":" in form:
                axes.append(sliced(form, a))
        if self.chance(4) and items[-1] == ":":
            items[-1] = "..."
        return self.add(f"{x.name}[{', '.join(items)}]", x.dtype, axes, x.exact, x.reach)

    def _reshape(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        forms: list[tuple[str, list[Axis]]] = [
            (f"reshape({x.name}, -1)", [Axis("", math.prod(a.size for a in x.axes))])
        ]
        for k in range(x.rank - 1):
            a, b = x.axes[k], x.axes[k + 1]
            rest = [self.size(x, j) for j in range(x.rank)]
            merged = [
                *x.axes[:k],
                Axis(str(a.size * b.size) if a.known and b.known else "", a.size * b.size),
                *x.axes[k + 2 :],
            ]
            shape = ", ".join(
                [
                    *rest[:k],
                    f"{rest[k]} * ({rest[k + 1]})" if not a.text.count("+") else f"({rest[k]}) * ({rest[k + 1]})",
                    *rest[k + 2 :],
                ]
            )
            forms.append((f"reshape({x.name}, ({shape},))", merged))
        for k, a in enumerate(x.axes):
            for q in (2, 3, 11):
                if a.size and a.size % q == 0:
                    rest = [self.size(x, j) for j in range(x.rank)]
                    outer = str(a.size // q) if a.known else f"({rest[k]}) // {q}"
                    split = [Axis(outer if a.known else "", a.size // q), Axis(str(q), q)]
                    shape = ", ".join([*rest[:k], outer, str(q), *rest[k + 1 :]])
                    forms.append((f"{x.name}.reshape({shape})", [*x.axes[:k], *split, *x.axes[k + 1 :]]))
        text, axes = self.choose(forms)
        return self.add(text, x.dtype, axes, x.exact, x.reach)

    def _move(self) -> Value | None:
        """flip, roll, expand_dims, squeeze, tril and triu."""
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        forms = [
            f"flip({x.name}, axis={k})",
            f"roll({x.name}, {self.choose((1, -2, 5, 40))}, axis={k})",
            f"flip({x.name})",
            "expand",
        ]
        forms += [f"roll({x.name}, 3)"]
        forms += [f"tril({x.name})", f"triu({x.name}, {self.choose((1, 0, -2))})"] if x.rank > 1 else []
        ones = [j for j, a in enumerate(x.axes) if a.text == "1"]
        forms += ["squeeze", "squeeze"] if ones else []
        form = self.choose(forms)
        axes = x.axes
        if form == "squeeze":
            k = self.choose(ones)
            form, axes = f"squeeze({x.name}, axis={k})", (*x.axes[:k], *x.axes[k + 1 :])
        if form == "expand":
            form, axes = f"expand_dims({x.name}, axis={k})", (*x.axes[:k], Axis("1", 1), *x.axes[k:])
        return self.add(form, x.dtype, axes, x.exact, x.reach)

    def _broadcast(self) -> Value | None:
        x = self.pick(lambda v: v.rank < 4)
        if x is None:
            return None
        lead = self._known_axis()
        axes = [lead, *(self._known_axis() if a.text == "1" and self.chance(2) else a for a in x.axes)]
        shape = ", ".join([a.text or self.size(x, k - 1) for k, a in enumerate(axes)])
        return self.add(f"broadcast_to({x.name}, ({shape},))", x.dtype, axes, x.exact, x.reach)

    def _known_axis(self) -> Axis:
        """An axis that the body of the program can write: a dimension or an integer."""
        named = [Axis(n, s) for n, s in self.sizes.items() if s <= 33]
        return self.choose([Axis("2", 2), *named, Axis("3", 3), Axis("1", 1), Axis("17", 17), *named])

    def _pad(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        widths = [(self.choose((0, 1, 3)), self.choose((1, 0, 5))) for _ in x.axes]
        axes = [
            Axis(str(a.size + b + c) if a.known else a.text if not b + c else "", a.size + b + c)
            for a, (b, c) in zip(x.axes, widths)
        ]
        fill = self.choose(("", ", constant_values=1")) if x.kind != "b" else ""
        text = f"pad({x.name}, ({', '.join(map(str, widths))},){fill})"
        return self.add(text, x.dtype, axes, x.exact, x.reach + 1)

    def _concat(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        others = [
            v
            for v in self.values
            if v.rank == x.rank and all(same(a, b) for j, (a, b) in enumerate(zip(v.axes, x.axes)) if j != k)
        ]
        parts = [x, *(self.choose(others) for _ in range(self.choose((1, 1, 2))))]
        dtype = DTYPES[x.dtype]
        for p in parts:
            dtype = promote(dtype, DTYPES[p.dtype])
        total = sum(p.axes[k].size for p in parts)
        joined = Axis(str(total) if all(p.axes[k].known for p in parts) else "", total)
        listed = ", ".join(p.name for p in parts)
        reach, exact = max(p.reach for p in parts), all(p.exact for p in parts)
        if not self.fits(reach, dtype.name):
            return None
        if all(same(p.axes[k], x.axes[k]) for p in parts) and self.chance(3):
            axes = (*x.axes[:k], Axis(str(len(parts)), len(parts)), *x.axes[k:])
            return self.add(f"stack(({listed}), axis={k})", dtype.name, axes, exact, reach)
        return self.add(
            f"concat([{listed}], axis={k})", dtype.name, (*x.axes[:k], joined, *x.axes[k + 1 :]), exact, reach
        )

    # ---- gathers and what comes from nowhere -----------------------------------------

    def _indices(self, axes: tuple[Axis, ...], extent: int) -> Value:
        """A parameter with indices, some counted from the end; now and then some out of range."""
        dtype = self.choose(("i64", "i32", "u8"))
        wild = 2 if self.chance(5) else 0
        return self.array(dtype, axes, 0 if dtype == "u8" else -extent - wild, max(extent - 1, 0) + wild)

    def _gather(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        i = self._indices(self.axes(self.choose((1, 2, 0))), x.axes[k].size)
        axes = (*x.axes[:k], *i.axes, *x.axes[k + 1 :])
        item = i.name if not self.chance(4) or i.dtype == "u8" else f"abs({i.name})"
        forms = [f"{x.name}[{', '.join([*[':'] * k, item])}]", f"take({x.name}, {item}, axis={k})"]
        return self.add(self.choose(forms), x.dtype, axes, x.exact, x.reach)

    def _along(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        i = self._indices((*x.axes[:k], self.axis(33), *x.axes[k + 1 :]), x.axes[k].size)
        return self.add(f"take_along_axis({x.name}, {i.name}, axis={k - x.rank})", x.dtype, i.axes, x.exact, x.reach)

    def _one_hot(self) -> Value | None:
        x = self.pick(lambda v: v.kind in "iu" and v.rank < 3)
        if x is None:
            return None
        classes = self._known_axis()
        return self.add(f"one_hot({x.name}, {classes.text})", "f32", (*x.axes, classes), True, 1)

    def _make(self) -> Value | None:
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

    def _like(self) -> Value | None:
        """Zeros, ones or a number, with the shape and dtype of a value, or of a shape alone."""
        x = self.pick()
        if x is None:
            return None
        a = self._known_axis()
        ways: list[tuple[str, str, tuple[Axis, ...]]] = [
            (f"zeros_like({x.name})", x.dtype, x.axes), (f"ones_like({x.name})", x.dtype, x.axes),
            (f"full_like({x.name}, 1)", x.dtype, x.axes), (f"zeros(({a.text}, 3))", "f32", (a, Axis("3", 3))),
        ]  # fmt: skip
        text, dtype, axes = self.choose(ways)
        return self.add(text, dtype, axes, True, 1)

    def _call(self) -> Value | None:
        """A call of another function of the module."""
        x = self.pick(lambda v: v.rank > 0 and v.dtype == "f32" and v.reach <= 1e10)
        if x is None:
            return None
        name = self.choose(tuple(HELPERS))
        axes = x.axes[:-1] if name == "rowwise" else x.axes
        return self.add(f"{name}({x.name})", "f32", axes, x.exact and name == "scaled", 130 * x.reach)
