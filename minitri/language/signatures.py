"""The parameters of all functions of the language that are not elementwise.

One table shared by everything that calls them (the typer, the numpy evaluator) or lists
them (docs, suggestions). `REQUIRED` marks a parameter without a default; a leading `*` one
that takes all remaining positional arguments as a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.numpy_semantics import REDUCTIONS, SCANS


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()

Signature = dict[str, Any]
V = TypeVar("V")

_REDUCTION: Signature = {"x": REQUIRED, "axis": None, "keepdims": False}
_SPREAD: Signature = {"x": REQUIRED, "axis": None, "correction": 0.0, "keepdims": False}
_SCAN: Signature = {"x": REQUIRED, "axis": None}
# By kind: sums and products may be told what dtype to accumulate in.
_REDUCTIONS: dict[str, Signature] = dict.fromkeys(("sum", "product"), {**_REDUCTION, "dtype": None})
_SCANS: dict[str, Signature] = dict.fromkeys(("sum", "product"), {**_SCAN, "dtype": None, "include_initial": False})

SIGNATURES: dict[str, Signature] = {
    **{name: _REDUCTIONS.get(row.kind, _REDUCTION) for name, row in REDUCTIONS.items()},
    "mean": _REDUCTION, "var": _SPREAD, "std": _SPREAD,
    **{f"cumulative_{name}": _SCANS.get(REDUCTIONS[name].kind, _SCAN) for name in SCANS},
    "matmul": {"a": REQUIRED, "b": REQUIRED, "precision": "ieee"},
    "einsum": {"subscripts": REQUIRED, "*operands": REQUIRED, "precision": "ieee"},
    "tensordot": {"x1": REQUIRED, "x2": REQUIRED, "axes": 2},
    "dot": {"x1": REQUIRED, "x2": REQUIRED}, "inner": {"x1": REQUIRED, "x2": REQUIRED}, "kron": {"x1": REQUIRED, "x2": REQUIRED},
    "cross": {"x1": REQUIRED, "x2": REQUIRED, "axis": -1},
    "matrix_power": {"x": REQUIRED, "n": REQUIRED},
    "matrix_norm": {"x": REQUIRED, "keepdims": False, "ord": "fro"},
    "reshape": {"x": REQUIRED, "*shape": REQUIRED},
    "expand_dims": {"x": REQUIRED, "axis": 0},
    "squeeze": {"x": REQUIRED, "axis": None},
    "moveaxis": {"x": REQUIRED, "source": REQUIRED, "destination": REQUIRED},
    "swapaxes": {"x": REQUIRED, "axis1": REQUIRED, "axis2": REQUIRED},
    "flatten": {"x": REQUIRED, "start_dim": 0, "end_dim": -1},
    "unstack": {"x": REQUIRED, "axis": 0},
    "split": {"x": REQUIRED, "indices_or_sections": REQUIRED, "axis": 0},
    "permute_dims": {"x": REQUIRED, "*axes": None},
    "matrix_transpose": {"x": REQUIRED},
    "broadcast_to": {"x": REQUIRED, "*shape": REQUIRED},
    "broadcast_arrays": {"*arrays": REQUIRED},
    "broadcast_shapes": {"*shapes": REQUIRED},
    "meshgrid": {"*arrays": REQUIRED, "indexing": "xy"},
    "tile": {"x": REQUIRED, "repetitions": REQUIRED},
    "repeat": {"x": REQUIRED, "repeats": REQUIRED, "axis": None},
    "flip": {"x": REQUIRED, "axis": None},
    "roll": {"x": REQUIRED, "shift": REQUIRED, "axis": None},
    "pad": {"x": REQUIRED, "pad_width": REQUIRED, "constant_values": 0},
    "concat": {"arrays": REQUIRED, "axis": 0},
    "stack": {"arrays": REQUIRED, "axis": 0},
    "hstack": {"arrays": REQUIRED}, "vstack": {"arrays": REQUIRED}, "dstack": {"arrays": REQUIRED},
    "column_stack": {"arrays": REQUIRED},
    "diff": {"x": REQUIRED, "axis": -1, "n": 1, "prepend": None, "append": None},
    "diagonal": {"x": REQUIRED, "offset": 0, "axis1": -2, "axis2": -1},
    "diag": {"x": REQUIRED, "k": 0},
    "tril": {"x": REQUIRED, "k": 0},
    "triu": {"x": REQUIRED, "k": 0},
    "take": {"x": REQUIRED, "indices": REQUIRED, "axis": None},
    "take_along_axis": {"x": REQUIRED, "indices": REQUIRED, "axis": -1},
    "searchsorted": {"x1": REQUIRED, "x2": REQUIRED, "side": "left", "sorter": None},
    "one_hot": {"x": REQUIRED, "num_classes": REQUIRED, "dtype": None},
    "arange": {"start": REQUIRED, "stop": None, "step": 1, "dtype": None},
    "zeros": {"shape": REQUIRED, "dtype": None},
    "ones": {"shape": REQUIRED, "dtype": None},
    "full": {"shape": REQUIRED, "fill_value": REQUIRED, "dtype": None},
    "zeros_like": {"x": REQUIRED, "dtype": None},
    "ones_like": {"x": REQUIRED, "dtype": None},
    "full_like": {"x": REQUIRED, "fill_value": REQUIRED, "dtype": None},
    "eye": {"n_rows": REQUIRED, "n_cols": None, "k": 0, "dtype": None},
    "asarray": {"obj": REQUIRED, "dtype": None},
    "astype": {"x": REQUIRED, "dtype": REQUIRED},
    "nextafter": {"x1": REQUIRED, "x2": REQUIRED},
    "result_type": {"*arrays_and_dtypes": REQUIRED},
    "can_cast": {"from_": REQUIRED, "to": REQUIRED},
    "isdtype": {"dtype": REQUIRED, "kind": REQUIRED},
    "finfo": {"type": REQUIRED}, "iinfo": {"type": REQUIRED},
}  # fmt: skip

# Spellings of numpy and torch for the array API's names.
FUNCTION_ALIASES = {
    "amax": "max", "amin": "min", "cumsum": "cumulative_sum", "cumprod": "cumulative_prod",
    "transpose": "permute_dims", "permute": "permute_dims", "concatenate": "concat", "cat": "concat",
    "ravel": "flatten", "row_stack": "vstack", "empty": "zeros", "empty_like": "zeros_like",
    "unsqueeze": "expand_dims", "view": "reshape", "expand": "broadcast_to",
    "swapdims": "swapaxes", "array": "asarray", "tensor": "asarray", "as_tensor": "asarray",
}  # fmt: skip
KEYWORD_ALIASES = {"dim": "axis", "keepdim": "keepdims", "dims": "axes", "ddof": "correction", "input": "x"}


def bind(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name, defaults filled in; CompileError MT0102 if they do not fit."""
    signature = SIGNATURES[name]
    bound: dict[str, Any] = {}
    rest = list(args)
    for parameter in signature:
        if parameter.startswith("*") and rest:
            bound[parameter[1:]] = rest[0] if len(rest) == 1 else tuple(rest)
            rest = []
        elif rest:
            bound[parameter] = rest.pop(0)
    if rest:
        count = len(signature)
        message = f"{name} takes at most {count} argument{'s' * (count != 1)}, not {len(args)}"
        raise CompileError("MT0102", message, help=describe(name))
    for key, given in keywords.items():
        parameter = _parameter(name, key, signature)
        if parameter in bound:
            raise CompileError("MT0102", f"{name} got `{parameter}` twice", help=describe(name))
        bound[parameter] = given
    for parameter, default in signature.items():
        plain = parameter.lstrip("*")
        if plain not in bound and default is REQUIRED:
            raise CompileError("MT0102", f"{name} needs its argument `{plain}`", help=describe(name))
        bound.setdefault(plain, default)
    return bound


def _parameter(name: str, key: str, signature: Signature) -> str:
    plain = [p.lstrip("*") for p in signature]
    key = key if key in plain else KEYWORD_ALIASES.get(key, key)
    if key not in plain:
        aliases = [a for a, p in KEYWORD_ALIASES.items() if p in plain]
        help = suggest(key, [*plain, *aliases]) or describe(name)
        raise CompileError("MT0102", f"{name} has no argument `{key[:40]}`", help=help)
    return key


def describe(name: str) -> str:
    """The signature as one would write it: `sum(x, axis=None, keepdims=False)`."""
    shown = [p if d is REQUIRED else f"{p}={d}" for p, d in SIGNATURES[name].items()]
    return f"`{name}({', '.join(shown)})`"


# ---- calls that are made once --------------------------------------------------------------


class Memo(Generic[V]):
    """The results of calls, by function and arguments: a call with the same arguments is made once.

        def f1(x): return f0(x) + f0(x)        f0(x) is made once, though it is called twice
        def f2(x): return f1(x) + f1(x)        so f2 needs three calls, not seven

    Without this the number of calls doubles with each level of functions that call another twice.
    `key`: what stands for a value that is no number and no tuple.
    """

    def __init__(self, key: Callable[[Any], Hashable]) -> None:
        self._key = key
        self._made: dict[Hashable, V] = {}

    def once(self, function: Hashable, arguments: Mapping[str, V], make: Callable[[], V]) -> V:
        """The result of a call: the one from before, or what `make` gives now."""
        key = function, tuple((name, self._of(value)) for name, value in sorted(arguments.items()))
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _of(self, value: Any) -> Hashable:
        """Equal for values that no program can tell apart: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        match value:
            case tuple():
                return tuple(map(self._of, value))
            case bool() | int() | float():
                return type(value).__name__, repr(value)
            case _:
                return "other", self._key(value)
