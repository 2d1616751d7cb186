"""Pass by pass: what each changed, by which rules, and where these are defined.

In: a compilation. Out: `Step`s in the order in which they run: `our_steps`, from the syntax tree to the Triton source,
and `triton_steps`, Triton's own passes over each kernel (triton_passes.py), down to its GPU dialect. A step that
changed nothing says so (`changed`); a page may hide it.

To find the rules of a pass, it runs once more on its input, and each rule that fires is recorded
(minitri/base/logs.py). Left out: diffs, which the page makes of the texts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minitri.base.dims import Dim
from minitri.base.limits import using
from minitri.base.logs import Firing, recorded
from minitri.explore.trace import Trace
from minitri.graph.ir import Const, Node, operands
from minitri.graph.text import format_number
from minitri.kernels.ir import Axis, Compute, Constant, Op
from minitri.pipeline import Compilation


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that fired: its name, what it does (one line), where it is defined, how often, and for what:
    pairs of texts, before and after, and the nodes that they come from."""

    name: str
    doc: str
    defined: str
    count: int
    cases: tuple[tuple[str, str], ...]
    nodes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Step:
    """A pass, run. `owner`: "minitri" or "triton"; `kernel`: which, for Triton's; `defined`: where ours
    stands, `minitri/optimize/simplify.py:43`."""

    owner: str
    name: str
    kernel: str
    stage: str
    doc: str
    defined: str
    before: str
    after: str
    rules: tuple[Rule, ...] = ()

    @property
    def changed(self) -> bool:
        return self.before != self.after


def our_steps(compiled: Compilation) -> tuple[Step, ...]:
    """Every pass of ours, with the rules that fired."""
    trace, steps, before = Trace(compiled), [], None
    for record, p in zip(compiled.passes, compiled.steps):
        with using(compiled.context.limits), recorded() as firings:
            if before is not None:
                p.made(before, compiled.context)
        before = compiled.value(p.stage)
        function, rules = p.function or p.run, tuple(_rules(firings, trace))
        about = _first_line(inspect.getmodule(function)), defined(function)
        steps.append(Step("minitri", p.name, "", p.stage, *about, record.before, record.after, rules))
    return tuple(steps)


def defined(function: Callable[..., Any]) -> str:
    """The file and line of a function, from the root of the package."""
    plain: Any = inspect.unwrap(getattr(function, "__func__", function))
    return f"{plain.__module__.replace('.', '/')}.py:{plain.__code__.co_firstlineno}"


def _first_line(documented: Any) -> str:
    """What a pass (its file says it) or a rule does."""
    return (inspect.getdoc(documented) or "").split("\n")[0]


def _rules(firings: Sequence[Firing], trace: Trace) -> list[Rule]:
    """Each rule once, in the order in which they first fired."""
    groups: dict[str, list[Firing]] = {}
    for f in firings:
        groups.setdefault(defined(f.rule), []).append(f)
    return [_rule(where, found, trace) for where, found in groups.items()]


def _rule(where: str, firings: Sequence[Firing], trace: Trace) -> Rule:
    function = firings[0].rule
    cases = dict.fromkeys((_shown(f.before), _shown(f.after)) for f in firings)
    nodes = trace.of(s for f in firings for s in f.spans)
    return Rule(function.__name__.lstrip("_"), _first_line(function), where, len(firings), tuple(cases), nodes)


def _shown(item: Any, depth: int = 2) -> str:
    """A node, an op or an axis in short: `cast(view(x)): f16[M]`."""
    match item:
        case Const() | Constant():
            return format_number(item.value)
        case Axis():
            return f"{item.name}: {item.extent}"
        case tuple():
            return ", ".join(_shown(i, depth) for i in item)
        case Dim():
            return str(item)
        case _:
            return _call(item, depth)


def _call(item: Node | Op, depth: int) -> str:
    op, kind = getattr(item, "op", ""), type(item).__name__.lower()
    name = getattr(item, "name", "") or (f"{kind}.{op}" if op and kind not in ("apply", "compute") else op or kind)
    below = item.args if isinstance(item, Compute) else operands(item) if not isinstance(item, Op) else ()
    inner = ", ".join(_shown(o, depth - 1) for o in below) if depth else "…" * bool(below)
    text = f"{name}({inner})" if below else name
    shape = getattr(item, "shape", None) if not isinstance(item, Op) else item.axes
    return f"{text}: {item.dtype}[{', '.join(map(str, shape or ()))}]" if depth == 2 else text
