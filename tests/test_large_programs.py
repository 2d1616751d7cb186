"""Large programs: the time from text to Triton source, deep nesting, and how the work grows with the size of the text.

Work is counted in calls of Python functions. This number is the same on every machine and under every load.
"""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from short_profile import every_second, slow_except

import minitri as mt

EVERYDAY = {
    "linear": ("relu(x @ w + b)", {"x": "f16[M, K]", "w": "f16[K, N]", "b": "f16[N]"}),
    "layer_norm": ("layer_norm(x, g, b)", {"x": "f32[*B, D]", "g": "f32[D]", "b": "f32[D]"}),
    "embedding": ("w[idx]", {"w": "f32[V, D]", "idx": "i64[*B]"}),
    "attention": (
        "softmax(q @ k.mT * D**-0.5, axis=-1) @ v",
        {"q": "bf16[*B, T, D]", "k": "bf16[*B, S, D]", "v": "bf16[*B, S, D]"},
    ),
    "cross_entropy": ("cross_entropy(z, y)", {"z": "f32[N, C]", "y": "i64[N]"}),
}
LOAD = 4  # how much slower than the promised 20 ms a machine may be


def seconds(text: str, **types: str) -> float:
    """CPU time, because other processes use this machine, too."""
    start = time.process_time()
    mt.compile(text, **types).lower()["triton"]
    return time.process_time() - start


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_programs_take_milliseconds(name: str) -> None:
    text, types = EVERYDAY[name]
    assert min(seconds(text, **types) for _ in range(5)) < 0.020 * LOAD


# ---- how work grows --------------------------------------------------------------------------


def calls(action: Callable[[], object]) -> int:
    """The number of Python functions that an action calls."""
    profile = cProfile.Profile(subcalls=False, builtins=False)
    profile.runcall(action)
    return sum(entry.callcount for entry in profile.getstats())


def compiled(text: str) -> mt.Lowered:
    with mt.limits(source=1_000_000, seconds=3600):
        low = mt.compile(text).lower()
        low["triton"]
    return low


def module(lines: list[str], result: str = "x", params: str = "x: f32[M, M]") -> str:
    return f"def f({params}):\n" + "".join(f"    {line}\n" for line in lines) + f"    return {result}\n"


def steps(text: str, arguments: str = "") -> Callable[[int], str]:
    """A function that writes n statements. In the text, `{k}` is the number of a statement, `{odd}` whether it is
    odd.
    """
    params = "x: f32[M, M]" + arguments
    return lambda n: module([text.format(k=k, odd=k % 2) for k in range(n)], params=params)


def outputs(text: str, between: str = ", ", first: str = "x = x") -> Callable[[int], str]:
    return lambda n: module([first], between.join(text.format(k=k, odd=k % 2) for k in range(n)))


def functions(n: int) -> str:
    made = "".join(f"def g{k}(x: f32[A, B]):\n    return tanh(x) + {k}.0\n" for k in range(n))
    return made + steps("x = g{k}(x)")(n)


def parameters(n: int) -> str:
    names = [f"x{k}" for k in range(n)]
    return module([], " + ".join(names), ", ".join(f"{name}: f32[M]" for name in names))


def dimensions(n: int) -> str:
    params = ", ".join(f"x{k}: f32[M{k}]" for k in range(n))
    return module([], " + ".join(f"sum(x{k})" for k in range(n)), params)


def stencil(n: int, returns: str = "") -> str:
    """Statements whose sizes depend on the sizes before."""
    edge = f"def edge(p: f32[X]){returns}:\n    return concat([p[:1], p[1:-1] + 0.5 * (p[2:] - p[:-2]), p[-1:]])\n"
    return edge + module(["x = edge(x)"] * n, params="x: f32[N]")


SHAPES: dict[str, Callable[[int], str]] = {
    "a chain": steps("x = tanh(x)"),
    "every value used twice": steps("x = x * x + x"),
    "softmax after softmax": lambda n: steps("x = softmax(x + 1.0, axis={odd})")(n // 5),
    "layer norm after layer norm": lambda n: steps("x = layer_norm(x)")(n // 5),
    "attention after attention": lambda n: steps("x = attention(x, x, x)")(n // 10),
    "product after product": lambda n: steps("x = relu(x @ x)")(n // 2),
    "running sums": lambda n: steps("x = cumulative_sum(x, axis={odd})")(n // 2),
    "gather after gather": lambda n: steps("x = x[i]", ", i: i64[M]")(n // 2),
    "views of views": steps("x = x.T[::-1]"),
    "rolls of rolls": lambda n: steps("x = roll(x, 1, axis=0) + x")(n // 5),
    "concats of slices of concats": steps("x = concat((x[1:], x[:1]))"),
    "methods": steps("x = x.tanh().abs()"),
    "outputs": outputs("x + {k}.0"),
    "outputs of different shapes": outputs("x[{k}:] + {k}.0"),
    "reductions": outputs("sum(x * {k}.0)"),
    "reductions along both axes": outputs("max(y * {k}.0, axis={odd})", first="y = exp(x) @ x"),
    "a sum of reductions": outputs("sum(x * {k}.0, axis=1)", " + "),
    "a sum of permuted reductions": outputs("sum(x, axis=1)[::-1] * {k}.0", " + "),
    "one concat of many": lambda n: module([], f"concat(({', '.join(f'x + {k}.0' for k in range(n))}))"),
    "functions": functions,
    "parameters": parameters,
    "dimensions": dimensions,
    "stencil steps": stencil,
    "stencil steps with a type": lambda n: stencil(n, " -> f32[X]"),
}


@cache
def work(name: str, n: int) -> int:
    """The calls for the compilation of a program of n statements."""
    if n > 10:
        work(name, 10)  # first loads everything that is loaded once
    else:
        compiled(SHAPES[name](n))
    return calls(lambda: compiled(SHAPES[name](n)))


LONG = ("concats of slices of concats", "stencil steps", "stencil steps with a type")  # 500 of these take a minute
TEN = [name for name in list(SHAPES)[::2] if name != "concats of slices of concats"]  # stencil steps are such concats
FIFTY = ("a chain", "reductions")


@pytest.mark.parametrize("name", slow_except(TEN, SHAPES))
def test_ten_times_the_text_is_ten_times_the_work(name: str) -> None:
    times = 4 if name in LONG else 10
    assert work(name, 10 * times) < 2.5 * times * work(name, 10)  # a program of one kernel needs no search


@pytest.mark.parametrize("name", slow_except(FIFTY, SHAPES))
def test_fifty_times_the_text_is_fifty_times_the_work(name: str) -> None:
    assert work(name, 500) < 6.5 * work(name, 100), "from 100 to 500"


# ---- work that could double ------------------------------------------------------------------


def doubling(depth: int, body: str, params: str = "x: f32[N]") -> str:
    """Functions that call the function before twice, nested `depth` times."""
    first = f"def f0({params}):\n    return tanh(x)\n"
    return first + "".join(f"def f{k}({params}):\n    return {body.format(k=k - 1)}\n" for k in range(1, depth + 1))


TWICE = {
    "the same argument": ("f{k}(x) + f{k}(x)", "x: f32[N]"),
    "equal arguments": ("f{k}(x * 0.5) + f{k}(x * 0.5)", "x: f32[N]"),
    "packs": ("f{k}(x * 0.5) + f{k}(x * 0.5)", "x: f32[*B, D]"),
    "no types": ("f{k}(x * 0.5) - f{k}(x * 0.5)", "x: f32[N], scale=2.0"),
    "named arguments": ("f{k}(x=x, scale=1.0) + f{k}(x, 1.0)", "x: f32[N], scale=2.0"),
    "one call more, through another": ("f{k}(silu(x)) + f{k}(silu(x))", "x: f32[N]"),
}


@pytest.mark.parametrize("name", slow_except(list(TWICE)[1::2], TWICE))  # the next test also builds
def test_calls_that_double_are_built_once(name: str) -> None:
    work = [calls(lambda d=d: compiled(doubling(d, *TWICE[name]))) for d in (10, 30, 90)]
    assert work[1] < 5 * work[0] and work[2] < 4 * work[1]


@pytest.mark.parametrize("name", every_second(list(TWICE)))
def test_calls_that_double_are_evaluated_once(name: str) -> None:
    """The reference knows nothing of the graph. Stages and error bounds are evaluated, too."""
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    warm, *made = [mt.compile(doubling(d, *TWICE[name])) for d in (3, 10, 30, 90)]
    for action in (lambda f: f.numpy(x), lambda f: f.run("kernels", x), lambda f: f.explain()):
        action(warm)  # first loads everything that is loaded once
        work = [calls(lambda f=f, action=action: action(f)) for f in made]
        assert work[1] < 5 * work[0] and work[2] < 4 * work[1]
    assert made[1].check(x).ok


def test_calls_with_other_arguments_are_not_shared() -> None:
    """0.0 and -0.0 differ, as do 1 and True, and a library function and the module's function of the same name."""
    text = "def h(x):\n    return x + 0.0\ndef g(x: f32[N], a):\n    return h(x) * a\ndef f(x: f32[N]):\n"
    x = np.array([3, -5], np.float32)
    pairs = {("0.0", "-0.0"): (0.0, -0.0), ("1", "2"): (1, 2), ("True", "2"): (1, 2), ("N", "N + 1"): (2, 3)}
    for written, (a, b) in {**pairs, ("x", "x + 1"): (x, x + 1)}.items():
        program = mt.compile(text + "    return g(x, {}), g(x, {})\n".format(*written))
        for got in (program(x), program.numpy(x)):
            np.testing.assert_array_equal(got, (x * a, x * b))
            assert (np.signbit(got) == np.signbit((x * a, x * b))).all()
    own = mt.compile("def silu(x):\n    return gelu(x) + 1.0\ndef f(x: f32[N]):\n    return silu(x), gelu(x)")
    x = np.array([0.0, 2.0], np.float32)
    assert (own(x)[0] - own(x)[1]).tolist() == [1, 1]


NESTS = {
    "a tuple of the tuple twice": "s = (s, s)",
    "a tuple and itself": "s = s + s",
    "a tuple of three": "s = (s, 1, s)",
}


@pytest.mark.parametrize("name", NESTS)
def test_tuples_that_double_are_refused(name: str) -> None:
    text = "def g(x: f32[N], s):\n    return x\ndef f(x: f32[N]):\n    s = (1, 2)\n"
    with pytest.raises(mt.CompileError, match="a tuple has more than 100,000 items") as refused:
        mt.compile(text + f"    {NESTS[name]}\n" * 60 + "    return g(x, s)\n")
    assert refused.value.code == "MT0401" and refused.value.span is not None
    assert mt.compile(text + f"    {NESTS[name]}\n" * 5 + "    return g(x, s)\n")


# ---- sizes that could double -----------------------------------------------------------------

EDGE = """def edge(p: f64[X]){returns}:
    return concat([p[:1], p[1:-1], p[-1:]])
def f(p: f64[N]){entry}:
{steps}    return p
"""


def edges(n: int, returns: str = "", entry: str = "") -> str:
    return EDGE.format(returns=returns, entry=entry, steps="    p = edge(p)\n" * n)


@pytest.mark.parametrize("returns, entry", [("", ""), (" -> f64[X]", ""), (" -> f64[X]", " -> f64[N]")])
def test_steps_do_not_make_sizes_larger(returns: str, entry: str) -> None:
    low = compiled(edges(30, returns, entry))
    assert len(low["graph"].splitlines()[-2]) < 100
    program = mt.compile(edges(30, returns, entry))
    for n in (0, 2, 3, 9):
        x = np.arange(float(n))
        assert program(x).tolist() == program.numpy(x).tolist() == x.tolist()
    if returns:  # [a] becomes [a, a], which contradicts the type
        with pytest.raises(mt.CompileError, match="edge returns .* which is declared as f64"):
            program(np.ones(1))
    else:
        assert program(np.ones(1)).tolist() == program.numpy(np.ones(1)).tolist() == [1, 1]


def test_a_declared_size_replaces_the_computed_one() -> None:
    low = mt.compile(edges(2, " -> f64[X]") + "def g(p: f64[N]):\n    return f(p) + p[::-1]\n").lower()
    text = low["graph"]
    assert text.count("require") == 1, "checked once"
    assert "f64[N] = add" in text


def test_a_declared_parameter_size_is_used_in_the_function() -> None:
    text = "def g(a: f32[X], b: f32[X]):\n    return a * b + b\ndef f(x: f32[M], y: f32[N]):\n    return g(x, y)\n"
    graph = mt.compile(text).lower()["graph"]
    assert graph.count("require") == 1 and "f32[M] = multiply" in graph and "f32[M] = add" in graph


# ---- depth -----------------------------------------------------------------------------------


def test_depth_has_no_limit() -> None:
    assert mt.compile(" + ".join(["x"] * 3_000), x="f32[N]").lower()["triton"]
    assert mt.compile("(" * 500 + "x" + ")" * 500, x="f32[N]").lower()["triton"]
    assert mt.compile("-" * 2000 + "x", x="f32[N]").lower()["triton"]
