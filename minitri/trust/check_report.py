"""The result of `check`: a row for each pass and variant, and the smallest call that fails.

A `CheckReport` has the rows that check_passes.py makes. The text of a `CheckReport` is a table, and a notebook shows a
`CheckReport` as a card.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minitri.base.nodes import grouped
from minitri.base.text_tables import table
from minitri.notebook.card_html import card, counted

# For some variants, the text that reports show: what runs, and on which processor. Other variants appear by their names.
PLACES = {"cuda": "cuda:90 on CPU", "cuda general": "any sizes on CPU", "cuda wide": "64-bit offsets on CPU"}
TEXT = "text"  # `CheckRow.by` of a stage that was loaded from a text
SHOWN = 24  # elements of an array that a report prints


class CheckRow(NamedTuple):
    """The outcome of checking one compilation stage. The field `by` has the name of the pass that made the stage.

    `max_error` and `bound` are the error and the error bound of the element with the largest ratio of error to bound.
    """

    by: str
    stage: str
    variant: str
    ok: bool
    max_error: float = 0.0
    bound: float = 0.0
    note: str = ""
    seconds: float = 0.0

    @property
    def ran(self) -> bool:
        """Tells whether this machine could run the stage."""
        return not self.note.startswith("not run")

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.stage, self.variant)))
        culprit = "the text" if self.by == TEXT else f"the pass `{self.by}`"
        return f"{culprit} is {'right' if self.ok else 'wrong'} ({where})"


class Failure(NamedTuple):
    """The smallest failing call that the search found. The wrong pass is the first pass that fails for this call.

    `before`, `after`: the printed input and the printed output of the wrong pass.
    `got`: the results of the stage that the wrong pass made, or None if this stage does not run.
    """

    row: CheckRow
    program: str
    sizes: dict[str, int]
    arguments: dict[str, Any]
    expected: tuple[Any, ...]
    got: tuple[Any, ...] | None
    before: str
    after: str

    def as_dict(self) -> dict[str, Any]:
        """Returns the failure as a dictionary that can be written as JSON.

        A large array is given by its dtype and shape only.
        """
        arrays = {n: _as_json(v) for n, v in self.arguments.items()}
        expected, got = (results and list(map(_as_json, results)) for results in (self.expected, self.got))
        facts = self._asdict() | {"arguments": arrays, "expected": expected, "got": got}
        return facts.pop("row")._asdict() | facts

    def __str__(self) -> str:
        sizes = [f"sizes     {', '.join(f'{n} = {s}' for n, s in self.sizes.items())}"] * bool(self.sizes)
        results = [("expected", value) for value in self.expected] + [("got", value) for value in self.got or ()]
        values = [f"{name:9} {_described(value)}" for name, value in (*self.arguments.items(), *results)]
        return "\n".join([f"{self.row}: {self.row.note}", self.program, *sizes, *values])


class CheckReport(NamedTuple):
    """The result of a check: one row for each stage and variant, and the smallest call that fails.

    The attribute `smallest` is the failing call with the smallest arguments that the search found. The attribute
    `smallest` is None if no row fails, or if the search is turned off.
    """

    rows: Sequence[CheckRow]
    smallest: Failure | None = None

    @property
    def ok(self) -> bool:
        return all(r.ok for r in self.rows)

    @property
    def ran(self) -> list[CheckRow]:
        """The check results of all stages that this machine could run."""
        return [r for r in self.rows if r.ran]

    @property
    def scope(self) -> str:
        """Returns one line that says which stages ran on which processor, which stages did not run, and why they did
        not run.
        """
        ran = [PLACES.get(r.variant, r.variant) for r in self.ran if r.variant]
        missing = [
            f"{PLACES.get(r.variant, r.variant)} ({r.note.removeprefix('not run: ')})" for r in self.rows if not r.ran
        ]
        parts = {"ran": dict.fromkeys(ran), "not run": dict.fromkeys(missing)}
        return "; ".join(f"{what}: {', '.join(places)}" for what, places in parts.items() if places)

    @property
    def first(self) -> CheckRow | None:
        """The first row whose result is wrong, or None if every result is right."""
        return next((r for r in self.rows if not r.ok), None)

    @property
    def guilty(self) -> str | None:
        """The name of the first pass with a wrong result, or None if every result is right."""
        return self.first and self.first.by

    @property
    def first_bad(self) -> str | None:
        """The name of the stage that the first wrong pass made, or None if every pass is right."""
        return self.first and self.first.stage

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as values that JSON can hold."""
        rows, smallest = [r._asdict() for r in self.rows], self.smallest and self.smallest.as_dict()
        return {"ok": self.ok, "guilty": self.guilty, "first_bad": self.first_bad, "rows": rows, "smallest": smallest}

    def __str__(self) -> str:
        rows = self._table()
        smallest = [f"\n{self.smallest}"] if self.smallest else []
        return "\n".join([table(rows, (0, 1, len(rows[0]) - 1)), *self._not_run(), *smallest])

    def _repr_html_(self) -> str:
        facts = "every pass is right" if self.ok else str(self.first)
        rows, text, note = self._table(), str(self.smallest or ""), "; ".join(self._not_run())
        fold = counted(len(rows) - 1, "pass", "passes")
        return card("check", facts=facts, wrong=not self.ok, rows=rows, fold=fold, text=text, note=note)

    def _table(self) -> list[tuple[str, ...]]:
        """Returns the lines of the table: the column names, then one line per pass."""
        variants = list(dict.fromkeys(r.variant for r in self.ran if r.variant))
        steps = grouped(((r.by, r.stage), r) for r in self.ran)
        head = ("pass", "stage", *(PLACES.get(v, v) for v in variants), "max error", "of bound", "note")
        return [head, *(_line(rows, variants) for rows in steps.values())]

    def _not_run(self) -> list[str]:
        """Returns a line for each variant that did not run: the variant's name and the reason."""
        return list(dict.fromkeys(f"{PLACES.get(r.variant, r.variant)}: {r.note}" for r in self.rows if not r.ran))


def _line(rows: Sequence[CheckRow], variants: Sequence[str]) -> tuple[str, ...]:
    """Returns the table cells that summarise the check results of one pass."""
    # The variant with the largest error relative to its bound; a failed variant comes first.
    worst = max(rows, key=lambda r: (not r.ok, r.max_error / (r.bound or 1)))
    found = {r.variant: "ok" if r.ok else "WRONG" for r in rows}
    cells = [found.get(v, found.get("", "")) for v in variants]
    note = worst.note or next((r.note for r in rows if r.note), "")
    return (worst.by, worst.stage, *cells, f"{worst.max_error:.2e}", f"{worst.bound:.2e}", note)


def _as_json(value: Any) -> Any:
    """Returns an array's dtype and shape, with the elements if the array is small."""
    if not isinstance(value, np.ndarray):
        return value if isinstance(value, (int, float, str)) else repr(value)
    found = {"dtype": value.dtype.name, "shape": list(value.shape)}
    if value.size <= SHOWN:
        found["values"] = (value.astype(np.float64) if value.dtype.kind == "V" else value).tolist()
    return found


def _described(value: Any) -> str:
    """Returns an array's dtype and shape as text, with the elements if there are few."""
    if not isinstance(value, np.ndarray):
        return repr(value)
    about = _as_json(value)
    return f"{about['dtype']}{about['shape']} {about.get('values', '')}".rstrip()
