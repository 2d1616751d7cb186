"""The table of other libraries' names (minitri/language/foreign/): every name has an answer, and every answer is
right.

Example: a row says `write mean(x, axis=axis) for average(x, axis)`. Then the test gives the same small arrays to
numpy's or torch's function and to the expression, and compares. `SAMPLES` has arguments for rows that `DEFAULTS`
does not suit.
"""

from __future__ import annotations

import math
import re
import types
from typing import Any

import numpy as np
import pytest
import torch

import minitri as mt
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.types import DTYPES, DType, f32
from minitri.graph.unknown_names import ATTRIBUTES, function_names
from minitri.language.ast import CONSTANTS
from minitri.language.foreign import names as answers
from minitri.language.foreign.names import LIBRARIES, Foreign, table

MODULES: dict[str, list[Any]] = {
    "np": [np], "array": [np.ndarray], "torch": [torch], "F": [torch.nn.functional], "tensor": [torch.Tensor],
    "linalg": [np.linalg, torch.linalg], "special": [torch.special], "math": [math],
}  # fmt: skip

TORCH = [torch, torch.nn.functional, torch.Tensor, torch.linalg, torch.special]

# ---- names -------------------------------------------------------------------------------


def named(library: str) -> set[str]:
    return {row.name.lstrip(".") for row in table() if library in row.libraries}


def public(module: Any) -> set[str]:
    """Names of values and functions, without modules and without torch's internal classes."""
    found = {n: getattr(module, n, None) for n in dir(module) if not n.startswith("_")}
    inner = {
        n for n, v in found.items() if isinstance(v, types.ModuleType) or getattr(v, "__module__", "") == "torch._C"
    }
    if module is torch:
        inner |= {n for n, v in found.items() if isinstance(v, type)}
    return set(found) - inner


@pytest.mark.parametrize("library", MODULES)
def test_every_public_name_has_an_answer(library: str) -> None:
    for module in MODULES[library]:
        asked = {n for n in public(module) if not re.search(r"_(common|multi_dim|args|notes)|common_", n)}
        missing = {n for n in asked if not answers.prefixed([_prefix(library)], n)} - named(library)
        assert len(missing) <= len(asked) // 50, sorted(missing)  # a new version may have a few more


def _prefix(library: str) -> str:
    return {"array": "np", "tensor": "torch", "linalg": "linalg", "special": "special"}.get(library, library)


def test_the_table_is_large() -> None:
    least = {"np": 490, "jnp": 400, "torch": 700, "F": 140, "api": 150}
    assert {library: len(named(library)) for library in least if len(named(library)) < least[library]} == {}
    assert len(named("np") | named("torch") | named("F") | named("jnp")) >= 900


def test_rows_are_well_formed() -> None:
    for row in table():
        assert set(row.libraries) <= set(LIBRARIES), row
        assert bool(row.instead) != bool(row.reason), row
    spelled = [(row.spelling, of) for row in table() for of in row.libraries]
    assert len(spelled) == len(set(spelled)), sorted({s for s in spelled if spelled.count(s) > 1})


def test_names_marked_as_equal_exist_in_minitri() -> None:
    known = {*function_names(), *CONSTANTS, *DTYPES, *ATTRIBUTES}
    assert {row.name for row in table() if row.here and row.name.lstrip(".") not in known} == set()


OTHERWISE = {
    "pad",
    "can_cast",
    "result_type",
    "view",
    "float",
    "int",
}  # names that only one library has, or that have other forms


def test_no_existing_name_is_called_missing() -> None:
    missing = {row.name for row in table() if row.reason}
    assert missing & set(function_names()) <= OTHERWISE


# ---- what the answers compute --------------------------------------------------------------

RNG = np.random.default_rng(7)


def real(*shape: int) -> Any:
    return np.round(RNG.normal(size=shape) * 2, 2)


UP = np.array([-2.0, -0.5, 0.25, 1.5])  # increasing
DEFAULTS: dict[str, Any] = {
    "x": real(3, 4), "y": real(3, 4), "z": real(3, 4), "v": real(4), "w": real(4), "a": real(3, 4), "b": real(4, 3),
    "axis": 1, "dim": 1, "n": 3, "m": 4, "k": 2, "q": 0.3, "dtype": f32, "weight": real(3, 4), "value": 2.5,
    "index": np.array([2, 0]), "indices": np.array([[2, 0], [1, 1], [3, 2]]), "mask": real(3, 4) > 0, "p": real(3, 4) > 0,
    "s": 2.5, "decimals": 1, "i": np.array([0, 2, 1]), "start": 1, "stop": 3, "end": 5, "num": 5, "length": 2,
    "unbiased": False, "initial": 0.5, "where": real(3, 4) > 0, "keepdim": True, "keepdims": True, "alpha": 0.5, "min": -1.0, "max": 1.0, "shape": (2, 3), "source": 0,
    "destination": 1, "diagonal": 1, "size": 2, "dim0": 0, "dim1": 1, "base": 3.0, "bias": real(3), "indexing": "xy",
    "K": 2, "M": 2, "N": 3, "real": 0.5, "kth": 1, "step": 1, "reps": (2, 1), "threshold": 0.5, "boundaries": UP, "bins": UP, "xp": UP, "fp": real(4),
}  # fmt: skip
CHANCES = np.array([[0.1, 0.6], [0.3, 0.9]])
SIGNS = np.where(real(3, 4) > 0, 1.0, -1.0)
CUBES = {"a": real(2, 3, 4), "b": real(2, 4, 3), "c": real(3, 3)}
ROW = {"x": real(5), "y": real(5), "p": real(3)}
HEADS = {k: real(2, 3, 4) for k in "qkv"}
EVEN = {"x": real(4, 4, 4), "n": 2, "size": 2}
PAIR = {"x": np.arange(3), "y": np.arange(2)}
SPREAD = {"running_mean": real(4), "running_var": np.abs(real(4)) + 0.1, "v": np.abs(real(3, 4)) + 0.1}
CHOSEN = {"target": np.array([0, 3, 1]), "index": np.array([[2, 0], [1, 1], [3, 3]]), "weight": real(5, 4)}
SAMPLES: dict[str, dict[str, Any]] = {  # arguments by the name of the row, if DEFAULTS does not suit
    "addbmm": CUBES, "baddbmm": CUBES | {"c": real(2, 3, 3)}, "bmm": CUBES, "addmm": CUBES | {"a": real(3, 4), "b": real(4, 3)},
    "addmv": {"c": real(3)}, "addr": {"c": real(4, 4)}, "gradient": ROW, "byte": {"x": np.arange(5.0)},
    "binary_cross_entropy": {"x": CHANCES, "y": CHANCES.T}, "logit": {"x": CHANCES}, "bilinear": {"weight": real(5, 4, 4)},
    "kl_div": {"y": np.abs(real(3, 4))}, "choose": {"choices": real(3, 3)}, "item": {"x": real(1, 1)},
    "cumproduct": ROW, "nancumprod": ROW, "nancumsum": ROW, "vdot": ROW, "polyval": ROW, "dist(x, y)": ROW, "fsum": ROW,
    "convolve": {"a": real(5), "v": real(3)}, "correlate": {"a": real(5), "v": real(3)}, "vecmat": {"v": real(3)},
    "dsplit": EVEN, "hsplit": EVEN, "split": EVEN, "chunk": EVEN, "unbind": EVEN, "meshgrid": PAIR,
    "hinge_embedding_loss": {"y": SIGNS}, "soft_margin_loss": {"y": SIGNS}, "margin_ranking_loss": {"target": SIGNS},
    "embedding": {"weight": real(4, 3)}, "gather": CHOSEN, "nll_loss": CHOSEN, "linear": CHOSEN | {"bias": real(5)}, "prelu": {"weight": real(4)},
    "select": {"index": 2}, "ldexp": {"i": np.arange(12).reshape(3, 4)}, "scalar_tensor": {"x": 0.75}, "isqrt": {"x": 17},
    "batch_norm": SPREAD, "gaussian_nll_loss": SPREAD, "instance_norm": {"x": real(2, 3, 5)}, "vsplit": {"n": 3},
    "layer_norm": {"normalized_shape": (4,)}, "rms_norm": {"normalized_shape": (4,)}, "scaled_dot_product_attention": HEADS,
    "promote_types": {"a": DTYPES["i16"], "b": f32}, "fill_diagonal": {"x": real(3, 3)}, "log": {"x": 0.75},
    "partition": {"x": np.array([1.0, 2.0, 3.0])}, "argpartition": {"x": np.array([1.0, 2.0, 3.0])},
}  # fmt: skip
KNOWN_SIZES = {"split", "unbind"}
UNSET = {"empty", "new_empty"}  # their elements may have any value
OTHER_RESULTS = {"promote_types", "dtype"}  # the result is a dtype
NEEDS_A_GPU = {"cuda"}
ROWS = [row for row in table() if row.instead and row.arguments and row.name not in OTHER_RESULTS | NEEDS_A_GPU]


def parameters(row: Foreign) -> dict[str, str]:
    """The parameters of a row and their defaults, "" for none: `x, *, alpha=2` has x, alpha."""
    found: dict[str, str] = {}
    for part in row.arguments.split(", "):
        name, _, default = part.partition("=")
        name = name.split(":")[0].lstrip("*")
        if name and name != "rest":
            found[name] = default
    return found


def samples(row: Foreign, library: str) -> dict[str, Any]:
    """Arguments for the parameters without defaults. Functions of `math` take numbers and lists of numbers."""
    own = SAMPLES.get(row.spelling, SAMPLES.get(row.name, {}))
    values = {name: own.get(name, DEFAULTS.get(name)) for name, default in parameters(row).items() if not default}
    scalars = {"i": 3, "f": 0.75}
    return {n: scalars[v.dtype.kind] if library == "math" and np.ndim(v) == 2 else v for n, v in values.items()}


def computed(row: Foreign, library: str) -> Any:
    """The value of a row's expression. numpy and the graph must agree on it."""
    values = samples(row, library)
    arrays = {n: v for n, v in values.items() if isinstance(v, np.ndarray)}
    fixed = {n: written(v) for n, v in values.items() if n not in arrays}
    fixed |= {n: default for n, default in parameters(row).items() if default}
    instead = row.instead.replace(", *rest", "")
    for n, text in fixed.items():
        instead = re.sub(rf"\b{n}\b(?![=(])", text, instead)
    types = {n: f"f64{list(v.shape)}" if row.name in KNOWN_SIZES else None for n, v in arrays.items()}
    program = mt.compile(instead, types=types)
    reference = program.numpy(**arrays)
    same(program.run("graph", **arrays), reference, row)
    return reference


def written(value: Any) -> str:
    return value.name if isinstance(value, DType) else repr(value)


def asked(row: Foreign, library: str, module: Any) -> Any:
    """The result of the library's function, or the array that it changed in place."""
    values = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in samples(row, library).items()}
    if module in TORCH:
        values = {n: torch.tensor(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
    values = {n: dtype_of(v, module) if isinstance(v, DType) else v for n, v in values.items()}
    keywords = row.arguments.partition("*, ")[2].split(", ")
    named = {n: v for n, v in values.items() if n in keywords}
    result = getattr(module, row.name)(*(v for n, v in values.items() if n not in named), **named)
    if row.note.endswith("a tuple of it"):
        (result,) = result
    return next(iter(values.values())) if result is None else result


def dtype_of(dtype: DType, module: Any) -> Any:
    return torch.float32 if module in TORCH else np.dtype(dtype.numpy)


def same(given: Any, wanted: Any, row: Foreign) -> None:
    if isinstance(wanted, (tuple, list)):
        assert len(given) == len(wanted), row.spelling
        for a, b in zip(given, wanted):
            same(a, b, row)
        return
    given, wanted = (
        np.asarray(v.float() if str(getattr(v, "dtype", "")) == "torch.bfloat16" else v) for v in (given, wanted)
    )
    assert given.shape == wanted.shape, (row.spelling, given.shape, wanted.shape)
    if row.name not in UNSET:
        np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6, err_msg=row.spelling)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.spelling}-{row.libraries[0]}")
def test_replacements_compute_the_same(row: Foreign) -> None:
    for library in row.libraries:
        given = computed(row, library)
        for module in MODULES.get(library, []):
            if hasattr(module, row.name):
                same(given, asked(row, library, module), row)


# ---- names that minitri has, too ---------------------------------------------------------

FLOATS = {"x": real(3, 4), "y": real(3, 4), "z": real(3, 4), "v": real(4), "w": real(4), "b": real(4, 3)}
INTEGERS = {"x": np.arange(12).reshape(3, 4), "y": np.arange(12).reshape(3, 4)[::-1] % 5}
BOOLS = {"x": real(3, 4) > 0, "y": real(3, 4) > 0, "p": real(3, 4) > 0}
ARGUMENTS: dict[str, str] = {  # for functions that take more than arrays of one shape
    "where": "x > 0, x, y", "clip": "x, -1.0, 1.0", "clamp": "x, -1.0, 1.0", "arange": "2, 9, 3", "linspace": "0.0, 1.0, 5",
    "broadcast_to": "v, (3, 4)", "cross": "b, b * b + 1.0", "concat": "(x, y)", "concatenate": "(x, y), 1", "cat": "(x, y), 1",
    "stack": "(x, y), 1", "hstack": "(x, y)", "vstack": "(x, y)", "dstack": "(x, y)", "column_stack": "(x, y)", "row_stack": "(x, y)",
    "cumprod": "x, 1", "cumsum": "x, 1", "cumulative_prod": "v", "cumulative_sum": "v", "dot": "v, w", "einsum": '"ij,jk", x, b',
    "empty_like": "x * 0", "expand": "v, (3, 4)", "expand_dims": "x, 1", "unsqueeze": "x, 1", "flip": "x, (0,)", "full": "(2, 3), 1.5",
    "full_like": "x, 1.5", "inner": "v, w", "isin": "v, w", "kron": "x, b", "matmul": "x, b", "matrix_power": "x @ b, 3",
    "meshgrid": "v, w", "moveaxis": "x, 0, 1", "nextafter": "x, y", "outer": "v, w", "pad": "x, 1", "permute": "x, (1, 0)",
    "permute_dims": "x, (1, 0)", "repeat": "x, 2", "reshape": "x, (4, 3)", "view": "x, (4, 3)", "roll": "x, 1, 1", "split": "v, 2",
    "searchsorted": "v * 0.0, w", "squeeze": "x[:1], 0", "swapaxes": "x, 0, 1", "swapdims": "x, 0, 1", "take": "v, indices",
    "take_along_axis": "x, indices, 1", "tensordot": "x, y", "tile": "x, (2, 1)", "transpose": "x", "unstack": "x",
    "vecdot": "x, y", "zeros": "(2, 3)", "ones": "(2, 3)", "empty": "(0, 3)", "eye": "3", "softmax": "x, 1", "log_softmax": "x, 1",
    "logsumexp": "x, 1", "cross_entropy": "x, classes", "heaviside": "x, y", "broadcast_arrays": "x, v",
    "array": "x", "broadcast_shapes": "(3, 1), (4,)", "isclose": "x, y", "allclose": "x, y", "logaddexp": "x, y",
    "diff": "x", "copysign": "x, y", "count_nonzero": "x", "round": "x", "pow": "abs(x), y", "power": "abs(x), y",
    "flatten": "x", "ravel": "x", "quantile": "x, 0.3", "asarray": "x", "nan_to_num": "x",
}  # fmt: skip
UNTESTED = {
    "can_cast",
    "result_type",
    "finfo",
    "iinfo",
    "isdtype",
    "astype",
    "empty",
    "empty_like",
}  # functions of dtypes, or of any value
NUMBERS = {"isclose": "1.5, 0.5", "nextafter": "1.5, 0.5", "prod": "[1.5, 0.5]"}  # arguments for functions of `math`
UNIT = {"acos", "arccos", "asin", "arcsin", "atanh", "arctanh"}  # their domain is -1 to 1
POSITIVE = {"sqrt", "log", "log2", "log10", "log1p", "rsqrt", "acosh", "arccosh"}
HERE = [
    (row, of) for row in table() if row.here and not row.name.startswith(".") for of in row.libraries if of in MODULES
]


def operands(name: str) -> dict[str, Any]:
    found = OPERATORS.get(ALIASES.get(name, name))
    if found is not None and "f" not in found.accepts:
        return INTEGERS
    arrays = FLOATS | {"indices": np.array([[1], [0], [2]]), "classes": np.array([0, 3, 1])}
    if name in UNIT:
        arrays["x"] = np.tanh(arrays["x"])
    return arrays | {"x": np.abs(arrays["x"]) + 1.1} if name in POSITIVE else arrays


def call_of(name: str, library: str) -> str:
    found = OPERATORS.get(ALIASES.get(name, name))
    if library == "math":
        return NUMBERS.get(name, "0.5" if name in UNIT else "1.5" if found is None or found.arity == 1 else "1.5, 0.5")
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    return "x, y"[: 1 if found is None or found.arity == 1 else None]


@pytest.mark.parametrize("row, library", HERE, ids=lambda v: v.name if isinstance(v, Foreign) else v)
def test_functions_of_the_same_name_compute_the_same(row: Foreign, library: str) -> None:
    name = row.name
    if name in UNTESTED or name in CONSTANTS or name in DTYPES:
        return
    text, values = call_of(name, library), operands(name)
    arrays = {n: v for n, v in values.items() if re.search(rf"\b{n}\b", text)}
    program = mt.compile(
        f"{name}({text})", types={n: f"{v.dtype.name[0]}{8 * v.itemsize}{list(v.shape)}" for n, v in arrays.items()}
    )
    given = program.numpy(**arrays)
    for module in MODULES[library]:
        if hasattr(module, name):
            theirs = {n: torch.tensor(v.copy()) if module in TORCH else v.copy() for n, v in values.items()}
            wanted = eval(f"f({text})", {"f": getattr(module, name)}, theirs)
            same(given, theirs["x"] if wanted is None else wanted, row)


def test_dtypes_and_constants_are_the_same() -> None:
    for row in table():
        for library in ("np", "torch"):
            theirs = getattr(MODULES[library][0], row.name, None)
            if library not in row.libraries or row.reason or row.arguments or theirs is None:
                continue
            if row.instead in DTYPES:
                given = mt.evaluate(f"zeros(1, {row.instead})").dtype
                other = torch.zeros(1, dtype=theirs) if library == "torch" else np.zeros(1, theirs)
                assert row.instead == "bf16" or np.asarray(other).dtype == given, row
            elif row.instead in CONSTANTS:
                assert repr(CONSTANTS[row.instead]) == repr(theirs), row


def test_expressions_in_reasons_compile() -> None:
    types = {"x": "f32[4, 4]", "y": "f32[4, 4]", "v": "f32[5]", "w": "f32[3]", "i": "i64[4]", "p": "bool[4, 4]"}
    types |= {"s": "float", "n": "i64[]", "j": "i64[]", "q": "bool[4, 4]"}
    for reason in sorted({row.reason for row in table() if row.reason}):
        for text in re.findall("`([^`]+)`", reason):
            if text == "x: f32[M, N]":
                continue
            text = re.sub(r"\bn\b", "3", text) if "one_hot" in text else text
            used = {n: t for n, t in types.items() if re.search(rf"\b{n}\b", text)}
            mt.compile(text, types=used)
