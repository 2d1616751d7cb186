"""Values known at compile time: lists used as arrays, dtypes and sizes of arrays, strings, widths of `pad`.

Each program runs at every stage and gives numpy's result for the same text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stages import CPU_STAGES

import minitri as mt
from minitri.base.diagnostics import CompileError

X = np.array([-1.5, -0.0, np.inf], np.float32)
I = np.array([-128, 0, 127], np.int8)
M = np.arange(6, dtype=np.float32).reshape(2, 3)
TYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "int8": "i8", "int64": "i64"}


def stages(text: str, *arrays: Any, **types: str) -> Any:
    """The result of a program. Asserts that it is the same at every stage."""
    f = mt.compile(text, **types)
    want = f.run("ast", *arrays)
    for stage in CPU_STAGES[1:]:
        got = f.run(stage, *arrays)
        np.testing.assert_array_equal(got, want, strict=True, err_msg=f"{text} at {stage}")
    return want


def agrees(text: str, want: Any, **arrays: Any) -> None:
    types = {n: f"{TYPES[a.dtype.name]}[{', '.join(map(str, a.shape))}]" for n, a in arrays.items()}
    np.testing.assert_array_equal(stages(text, *arrays.values(), **types), np.asarray(want), strict=True)


def refusal(text: str, **types: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        mt.compile(text, **types)
    assert caught.value.span is not None
    return caught.value


# ---- lists as arrays ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "text, want",
    [
        ("[1, 2, 3] + x", np.array([1, 2, 3], np.float32) + X),
        ("x * (0.1, -0.0, nan)", X * np.array([0.1, -0.0, np.nan], np.float32)),
        ("x[:1] + [5]", X[:1] + np.float32(5)),
        ("[[1, 2, 3], [4, 5, 6]] + x", np.array([[1, 2, 3], [4, 5, 6]], np.float32) + X),
        ("maximum([0, 1, 2], x)", np.maximum(np.array([0, 1, 2], np.float32), X)),
        ("where([True, False, True], x, 7)", np.where([True, False, True], X, np.float32(7))),
        ("x == [-1.5, 0, 2]", X == [-1.5, 0, 2]),
        ("[x[0], 2, x[1]] * 2.0", np.array([X[0], 2, X[1]], np.float32) * 2),
        ("[x.size, 1, 2] - x[:1]", np.array([3, 1, 2], np.float32) - X[:1]),
        ("[x, x].sum(axis=0)[:2]", (X + X)[:2]),
        ("2.0 * [1, 2, 3] + x", np.array([2, 4, 6], np.float32) + X),
        ("x[[2, 0, -1]]", X[[2, 0, -1]]),
        ("x[[[2, 0], [1, 1]]]", X[[[2, 0], [1, 1]]]),
        ("take(x, [0, 0])", np.take(X, [0, 0])),
    ],
)
def test_a_list_can_be_used_as_an_array(text: str, want: Any) -> None:
    agrees(text, want, x=X)


@pytest.mark.parametrize(
    "text, want",
    [
        ("asarray([1, 2])", np.array([1, 2])),
        ("array([[1, 2.5]])", np.array([[1, 2.5]], np.float32)),
        ("tensor([True, False])", np.array([True, False])),
        ("asarray([True, 2])", np.array([1, 2])),
        ("asarray([1.9, -1.9], i8)", np.array([1, -1], np.int8)),
        ("asarray([9223372036854775807, -9223372036854775808])", np.array([2**63 - 1, -(2**63)])),
        ("asarray([18446744073709551615], u64)", np.array([2**64 - 1], np.uint64)),
        ("asarray(3, f64)", np.float64(3)),
        ("sum([1, 2, 3])", np.int64(6)),
        ("[[1, 2], [3, 4]] @ [1, 1]", np.array([3, 7])),
        ("one_hot([0, 2], 3)", np.eye(3, dtype=np.float32)[[0, 2]]),
        ("einsum('i->', [1, 2, 3])", np.int64(6)),
        ("asarray([1, 2] + [3])", np.array([1, 2, 3])),
        ("reshape(arange(6), [2, 3]).shape == [2, 3]", np.True_),
    ],
)
def test_lists_in_expressions_without_arrays(text: str, want: Any) -> None:
    agrees(text, want)


def test_numbers_in_a_list_are_weak() -> None:
    agrees("x * [0.1, 0.2, 0.3]", X.astype(np.float64)[:0].sum() + np.array([0.1, 0.2, 0.3]), x=np.ones(3))
    agrees("x * [0.5, 2, 3]", np.array([0.5, 2, 3], np.float16), x=np.ones(3, np.float16))
    agrees("x + [127, 0, -127]", I + np.array([127, 0, -127], np.int8), x=I)
    agrees("x + [0.5, 0, 0]", I + np.array([0.5, 0, 0], np.float32), x=I)


def test_a_list_in_a_variable_can_be_an_index() -> None:
    text = "def f(x: f32[2, 3]):\n    i = [0, 1]\n    j = (0, 1)\n    return x[i] * 2, x[j]\n"
    gathered, element = mt.compile(text)(M)
    np.testing.assert_array_equal(gathered, M[[0, 1]] * 2)
    np.testing.assert_array_equal(element, M[0, 1])


def test_a_list_can_be_the_argument_of_a_declared_parameter() -> None:
    text = "def g(y: f16[K]):\n    return y * K\n\n\ndef f(x: f32[2]):\n    return g([1, 2]) + x\n"
    np.testing.assert_array_equal(mt.compile(text)(np.zeros(2, np.float32)), [2, 4])


@pytest.mark.parametrize(
    "text, code",
    [
        ("x + [1, 2, 300]", "MT0208"),
        ("x + reshape([200, 1, 2], (3,))", "MT0208"),
        ("x + broadcast_to(200, (3,))", "MT0208"),
        ("x + [[1, 2], [3]]", "MT0201"),
        ("x + [1, [2]]", "MT0201"),
        ("x + []", "MT0205"),
        ("x[[]]", "MT0205"),
        ("x + [1, None, 2]", "MT0202"),
        ("x + [1, i8, 2]", "MT0202"),
        ("2 * [1, 2, 3] + x", "MT0202"),
        ("([1, 2] == 1) & (x[:2] > 0)", "MT0202"),
        ("x[[True, False, True]]", "MT0206"),
        ("x[[0.5]]", "MT0206"),
        ("[1, 2][x]", "MT0206"),
        ("x + " + "[" * 65 + "1" + "]" * 65, "MT0401"),
        ("x + " + "[" * 4000 + "1" + "]" * 4000, "MT0401"),
    ],
)
def test_wrong_uses_of_lists_are_errors(text: str, code: str) -> None:
    assert refusal(text, x="i8[3]").code == code


# ---- dtypes and sizes --------------------------------------------------------------------------


def test_the_dtype_of_an_array_makes_constants_of_its_type() -> None:
    text = "def padded(v, n):\n    return concat((v, zeros(n, dtype=v.dtype)))\n\n\ndef f(x: {0}[N]):\n    return padded(x, 2)\n"
    for name, short in TYPES.items():
        out = mt.compile(text.format(short))(np.ones(2, name))
        assert out.dtype == name and out.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "text, want",
    [
        ("astype(x, y.dtype)", np.float64),
        ("zeros(1, x.dtype)", np.float16),
        ("zeros(1, (x * y).dtype)", np.float64),
        ("zeros(1, (2.5).dtype)", np.float32),
        ("zeros(1, (2).dtype)", np.int64),
        ("zeros(1, (x > 0).dtype)", np.bool_),
        ("x if x.dtype == f16 else y", np.float16),
        ("x if x.dtype != f16 else y", np.float64),
    ],
)
def test_dtypes_are_values(text: str, want: Any) -> None:
    assert stages(text, np.ones(1, np.float16), np.ones(1), x="f16[1]", y="f64[1]").dtype == want


def test_dtypes_are_not_ordered() -> None:
    assert refusal("x.dtype < f32", x="f32[N]").code == "MT0102"
    assert refusal("x.dtype", x="f32[N]").code == "MT0202"


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 3)])
def test_the_size_is_the_number_of_elements(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    types = f"f32[{', '.join('MN'[: len(shape)])}]"
    assert stages("sum(x) - x.size + zeros(x.size).shape[0]", x, x=types) == x.size


# ---- strings -----------------------------------------------------------------------------------


def test_strings_as_positional_arguments() -> None:
    text = """
def act(x, kind):
    return relu(x) if kind == "relu" else tanh(x)

def f(x: f32[3]):
    return act(x, "relu") + act(x, "tanh")
"""
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_allclose(mt.compile(text)(x), np.maximum(x, 0) + np.tanh(x), rtol=1e-6)
    assert mt.evaluate('gelu(x, "tanh")', x=x).tolist() == mt.evaluate('gelu(x, approximate="tanh")', x=x).tolist()
    assert mt.compile(text).check(x).ok


@pytest.mark.parametrize(
    "text, code, help",
    [
        ('exp("a")', "MT0202", ""),
        ('"a".sum()', "MT0202", ""),
        ('x.astype("float16")', "MT0202", "dtypes have no quotes; write `x.astype(f16)`"),
        ('zeros(3, "i8")', "MT0202", "dtypes have no quotes; write `zeros(3, i8)`"),
        ('zeros(3, "a")', "MT0202", "write f32, i64, bool, …"),
        ('sum(x, "a")', "MT0106", ""),
        ('gelu(x, "tan")', "MT0102", ""),
        ('x + "a"', "MT0002", ""),
    ],
)
def test_wrong_uses_of_strings_are_errors(text: str, code: str, help: str) -> None:
    error = refusal(text, x="f32[N]")
    assert error.code == code and help in error.help


# ---- pad ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n, k", [(0, 0), (1, 0), (1, 1), (5, 2), (3, 3)])
def test_pad_by_dimensions(n: int, k: int) -> None:
    x, y = np.arange(n * 3, dtype=np.float32).reshape(n, 3), np.zeros(k, np.float32)
    got = stages("pad(x, ((K, N - K), (0, 2 * K + 1)), -1.5)", x, y, x="f32[N, 3]", y="f32[K]")
    np.testing.assert_array_equal(got, np.pad(x, ((k, n - k), (0, 2 * k + 1)), constant_values=-1.5))
    assert mt.compile("pad(x, (0, K)) + zeros(N + K)", x="f32[N]", y="f32[K]").check(x[:, 0], y).ok


def test_a_negative_width_is_refused_at_the_call() -> None:
    f = mt.compile("pad(x, (0, N - K))", x="f32[N]", y="f32[K]")
    with pytest.raises(CompileError) as caught:
        f(np.zeros(2, np.float32), np.zeros(3, np.float32))
    assert caught.value.code == "MT0205" and "N - K is" in caught.value.message and "K=3, N=2" in caught.value.label
    for text in ("pad(x, (0, -1))", "pad(x, (1, 2, 3))", "pad(x, ())"):
        assert refusal(text, x="f32[N]").code == "MT0205"
    assert refusal("pad(x, 0.5)", x="f32[N]").code == "MT0106"


# ---- slices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x[k:k + 2]", "x[k:]", "x[:k]", "x[:, k:k + 2]", "x[x[0, 0]:]"])
def test_a_slice_bound_from_data_gets_an_index_as_help(text: str) -> None:
    error = refusal(text, x="f32[M, N]", k="i64[]")
    assert error.code == "MT0106" and "`x[k + arange(2)]`" in error.help


@pytest.mark.parametrize("k", [0, 1, -2])
def test_the_index_in_that_help_computes_the_slice(k: int) -> None:
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(stages("x[k + arange(2)]", x, np.int64(k), x="f32[N]", k="i64[]"), x[[k, k + 1]])
