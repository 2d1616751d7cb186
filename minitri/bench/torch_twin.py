"""A torch function that computes what a program of the language computes.

In: the text of a module. Out: a Python function of torch tensors for its last function. The syntax tree becomes a
tree of closures, and each closure calls one function of torch. `sum(x, axis=0)` becomes

    lambda scope: torch.sum(scope["x"], dim=0)

Eager torch and torch.compile run this function; in f64 it is the reference. The one idea: torch has the functions
of the language under the same names, except for those in `NAMES` and `FUNCTIONS`.

Left out: functions that no random program needs (random_programs.toml), and calls of a program's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minitri.bench.case import torch
from minitri.language import ast
from minitri.language.constant_arithmetic import BINARY, COMPARE, UNARY
from minitri.language.parser import parse_module

Scope = dict[str, Any]
KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
NAMES = {
    "max": "amax", "min": "amin", "maximum": "clamp_min", "minimum": "clamp_max", "clip": "clamp", "concat": "cat",
    "cumulative_sum": "cumsum", "permute_dims": "permute",
}  # fmt: skip
"""Functions that have another name in torch."""


def _layer_norm(x: Any, weight: Any = None, bias: Any = None) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def _pad(x: Any, widths: Sequence[Sequence[int]]) -> Any:
    """Pads with zeros. The pairs of torch begin at the last axis."""
    return torch.nn.functional.pad(x, [n for pair in reversed(widths) for n in pair])


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "layer_norm": _layer_norm,
    "pad": _pad,
    "rms_norm": lambda x, weight=None: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6),
    "std": lambda x, dim=None, **keywords: torch.std(x, dim, correction=0, **keywords),
    "var": lambda x, dim=None, **keywords: torch.var(x, dim, correction=0, **keywords),
}
"""Functions whose arguments differ in torch."""


def torch_twin(text: str) -> Callable[..., Any]:
    """The torch function of a module's last function. It returns one tensor, or a tuple of several."""
    function = parse_module(text, "<twin>").functions[-1]
    names = [p.name for p in function.params]
    steps = [(s.targets[0].id, _closure(s.value)) for s in function.body if isinstance(s, ast.Assign)]
    result = _closure(function.body[-1].value)

    def twin(*arrays: Any) -> Any:
        scope = dict(zip(names, arrays))
        for name, value in steps:
            scope[name] = value(scope)
        return result(scope)

    return twin


def _closure(node: ast.Node | None) -> Callable[[Scope], Any]:
    """A function that computes an expression from the values of its names. NotImplementedError if torch has no word
    for it.
    """
    match node:
        case None:
            return lambda scope: None
        case ast.Name(id=name):
            return lambda scope: scope[name]
        case ast.Number(value=value) | ast.String(value=value):
            return lambda scope: value
        case ast.EllipsisLiteral():
            return lambda scope: ...
        case ast.Attribute(value=of, name=("T" | "mT") as name):
            return _applied(lambda x: getattr(x, name), [of])
        case ast.Tuple(elements=parts):
            return _applied(lambda *values: values, parts)
        case ast.Slice(start=start, stop=stop, step=step):
            return _applied(slice, [start, stop, step])
        case ast.Subscript(value=of, indices=indices):
            return _applied(lambda x, *where: x[where], [of, *indices])
        case ast.Unary(op=op, operand=x):
            return _applied(UNARY[op], [x])
        case ast.Binary(op="@", left=x, right=y):
            return _applied(torch.matmul, [x, y])
        case ast.Binary(op=op, left=x, right=y) | ast.Compare(op=op, left=x, right=y):
            return _applied({**BINARY, **COMPARE}[op], [x, y])
        case ast.Call(function=name, args=args, keywords=keywords):
            return _applied(_function(name), args, keywords)
    raise NotImplementedError(f"torch has no word for {type(node).__name__}")


def _applied(
    function: Callable[..., Any], args: Sequence[ast.Node | None], keywords: Sequence[tuple[str, ast.Node]] = ()
) -> Callable[[Scope], Any]:
    """A closure that calls `function` with the values of `args` and `keywords`."""
    parts = [_closure(a) for a in args]
    named = {KEYWORDS.get(k, k): _closure(v) for k, v in keywords}
    return lambda scope: function(*[p(scope) for p in parts], **{k: v(scope) for k, v in named.items()})


def _function(name: str) -> Callable[..., Any]:
    """torch's function for a function of the language. Only names of the language get here: the parser knows them."""
    named = NAMES.get(name, name)
    found = FUNCTIONS.get(name) or getattr(torch, named, None) or getattr(torch.nn.functional, named, None)
    if found is None:
        raise NotImplementedError(f"torch has no word for {name}")
    return found
