"""A torch function that computes what a program of the language computes.

The function `torch_twin` takes the text of a module. It returns a Python function that computes the last function of
the module with torch. The Python function takes and returns torch tensors. The syntax tree becomes a tree of closures,
and each closure calls one function of torch. For example, `sum(x, axis=0)` becomes the closure `lambda scope:
torch.sum(scope["x"], dim=0)`.

Eager torch and torch.compile run the Python function that torch_twin.py makes. If the arrays are f64, the results of
the Python function are the reference for all implementations. For f64 arrays, the Python function replaces every
conversion to another float dtype by a conversion to f64. Therefore no value of the reference is rounded to a float
dtype with fewer bits than f64. The one idea: most functions of the language have the same name in torch. The tables
`NAMES` and `FUNCTIONS` list the exceptions.

The function `torch_twin` supports all functions that programs of the benchmark use, but not the whole language.
`torch_twin` does not support a function that calls another function of the module.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from minitri.base.types import DTYPES
from minitri.language import ast
from minitri.language.parser import parse_module

Scope = dict[str, Any]
OPERATORS = {**ast.BINARY, **ast.COMPARE, "@": torch.matmul}
KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
# Functions that have another name in torch.
NAMES = {
    "max": "amax", "min": "amin", "maximum": "clamp_min", "minimum": "clamp_max", "clip": "clamp", "concat": "cat",
    "permute_dims": "permute",
}  # fmt: skip


# Functions whose arguments differ in torch.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "astype": lambda x, dtype: x.to(dtype),
    "contiguous": lambda x: x.contiguous(),
    "cumulative_sum": lambda x, dim=0: torch.cumsum(x, dim),
    "layer_norm": lambda x, w=None, b=None: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, 1e-5),
    "matmul": lambda x, y, precision="": torch.matmul(x, y),
    "pad": lambda x, widths: torch.nn.functional.pad(x, [n for pair in reversed(widths) for n in pair]),
    "rms_norm": lambda x, weight=None: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6),
    "std": lambda x, dim=None, **keywords: torch.std(x, dim, correction=0, **keywords),
    "take_along_axis": lambda x, index, dim: torch.gather(x, dim, index),
    "var": lambda x, dim=None, **keywords: torch.var(x, dim, correction=0, **keywords),
}
DEVICE, RESULT = "the device of the first array", "the result"  # keys of a scope that are not names of values


def torch_twin(text: str) -> Callable[..., Any]:
    """Translates the last function of a module into a function of torch tensors.

    The torch function returns one tensor, or a tuple of several tensors.
    """
    function = parse_module(text, "<twin>").functions[-1]
    steps = [(s.targets[0].id if isinstance(s, ast.Assign) else RESULT, _closure(s.value)) for s in function.body]
    used = {n.id for s in function.body for n in ast.postorder(s.value) if isinstance(n, ast.Name)}
    names = [p.name for p in function.params if p.default is None]
    known: Scope = {p.name: p.default.value for p in function.params if isinstance(p.default, ast.Number)}
    known |= {name: value for name, value in ast.CONSTANTS.items() if name in used}
    dtypes = {t: getattr(torch, DTYPES[t].triton) for t in used & DTYPES.keys()}
    wide = known | dict.fromkeys(dtypes, torch.float64)  # the reference does not round in between
    sizes = {
        d.id: (k, place - len(p.annotation.dims))
        for k, p in enumerate(function.params) if isinstance(p.annotation, ast.ArrayType)
        for place, d in enumerate(p.annotation.dims) if isinstance(d, ast.Name) and d.id in used
    }  # fmt: skip

    def twin(*arrays: Any) -> Any:
        scope = dict(wide if arrays[0].dtype == torch.float64 else known | dtypes)
        scope |= {DEVICE: arrays[0].device, **dict(zip(names, arrays))}
        scope |= {name: arrays[k].shape[axis] for name, (k, axis) in sizes.items()}
        for name, value in steps:
            scope[name] = value(scope)
        return scope[RESULT]

    return twin


def _closure(node: ast.Node | None) -> Callable[[Scope], Any]:
    """Returns a function that computes an expression with torch from a dict of variables."""
    match node:
        case None | ast.NoneLiteral():
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
            return _applied(lambda x, *where: x[where[0] if len(where) == 1 else where], [of, *indices])
        case ast.Unary(op=op, operand=x):
            return _applied(ast.UNARY[op], [x])
        case ast.Binary(op=op, left=x, right=y) | ast.Compare(op=op, left=x, right=y):
            return _applied(OPERATORS[op], [x, y])
        case ast.Call(function="arange", args=(size,)):
            return _applied(lambda n, device: torch.arange(n, device=device), [size, ast.Name(size.span, DEVICE)])
        case ast.Call(function=name, args=args, keywords=keywords):
            return _applied(_function(name), args, keywords)
    raise NotImplementedError(f"torch has no word for {type(node).__name__}")


def _applied(
    function: Callable[..., Any], args: Sequence[ast.Node | None], keywords: Sequence[tuple[str, ast.Node]] = ()
) -> Callable[[Scope], Any]:
    """Returns a closure that evaluates the argument expressions, and calls `function` with the values."""
    parts = [_closure(a) for a in args]
    named = {KEYWORDS.get(k, k): _closure(v) for k, v in keywords}
    return lambda scope: function(*[p(scope) for p in parts], **{k: v(scope) for k, v in named.items()})


def _function(name: str) -> Callable[..., Any]:
    """Returns the torch function for a function of the language."""
    named = NAMES.get(name, name)
    # The programs in cases.toml also use functions that only torch has.
    found = FUNCTIONS.get(name) or getattr(torch, named, None) or getattr(torch.nn.functional, named, None)
    if found is None:
        raise NotImplementedError(f"torch has no word for {name}")
    return found
