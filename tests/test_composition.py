"""`mt.jit` functions that call each other and use constants, the origin of their source text, and calls without
types.
"""

from __future__ import annotations

import contextlib
import doctest
import linecache
import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from data import composed
from data.composed import scaled as tripled

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.explore.provenance import Trace
from minitri.program import Program

ROOT = Path(__file__).parent.parent
EPS = 0.5
SHAPE = (2, -1)
HALF = mt.f16
FLAG = True
N = 3
TABLE = np.ones(3)
X = np.arange(4, dtype=np.float32)


@mt.jit
def squares(x):
    return sum(x * x, axis=-1, keepdims=True)


@mt.jit
def unit(x, eps=EPS):
    return x / sqrt(squares(x) + eps)


@mt.jit
def early(x: f32[N]):
    return late(x) + EPS


@mt.jit
def late(x):
    return -x


def failure(make: Callable[[], Any]) -> CompileError:
    with pytest.raises(CompileError) as raised:
        make()
    return raised.value


# ---- functions ---------------------------------------------------------------------------------


def test_a_function_calls_another() -> None:
    np.testing.assert_allclose(unit(X), X / np.sqrt((X * X).sum() + 0.5), rtol=1e-6)
    assert [f.name for f in unit.module.functions] == ["squares", "unit"]
    assert unit.check(X).ok


def test_a_function_may_be_defined_later() -> None:
    np.testing.assert_array_equal(early(X), -X + 0.5)


def test_functions_of_other_modules() -> None:
    @mt.jit
    def f(x):
        return composed.scaled(x) + tripled(x) * composed.SCALE

    np.testing.assert_array_equal(f(X), X * 12)
    assert [f.name for f in f.module.functions] == ["scaled", "f"]


def test_functions_of_an_enclosing_function() -> None:
    by = 2

    @mt.jit
    def doubled(x):
        return x * by

    @mt.jit
    def f(x):
        return doubled(x) + by

    np.testing.assert_array_equal(f(X), X * 2 + 2)
    by = 3
    np.testing.assert_array_equal(f(X), X * 3 + 3)


def test_a_function_can_call_a_program_made_of_text() -> None:
    text = mt.compile("def half(x): return x / 2\ndef f(x: f32[N]): return half(x) + 1")

    @mt.jit
    def f(x):
        return text(x) * 2

    np.testing.assert_array_equal(f(X), (X / 2 + 1) * 2)
    stage = mt.load(mt.compile("x + 1", x="f32[4]").lower()["tile"], "tile")

    def g(x):
        return stage(x)

    assert "a Loaded of Python" in failure(lambda: mt.jit(g)(X)).message


def test_functions_with_equal_names_are_distinguished() -> None:
    def maker(by: float) -> Any:
        @mt.jit
        def scaled(x):
            return x * by

        return scaled

    one, two = maker(2.0), maker(5.0)

    @mt.jit
    def f(x):
        return one(x) + two(x) + composed.scaled(x)

    np.testing.assert_array_equal(f(X), X * 10)
    assert [f.name for f in f.module.functions] == ["scaled_3", "scaled_2", "scaled", "f"]


def test_own_functions_hide_functions_of_the_language() -> None:
    @mt.jit
    def relu(x):
        return x - 1

    @mt.jit
    def f(x):
        return relu(x) + composed_relu(x)

    @mt.jit
    def composed_relu(x):
        return maximum(x, 0)

    np.testing.assert_array_equal(f(X), X - 1 + X)

    @mt.jit
    def maximum(x):
        return composed_relu(x) * 2

    np.testing.assert_array_equal(maximum(X), X * 2)


def test_a_new_definition_compiles_again() -> None:
    def first(x):
        return x + 1

    inner = mt.jit(first)

    @mt.jit
    def outer(x):
        return inner(x) * 2

    @mt.jit
    def above(x):
        return outer(x) * 2

    np.testing.assert_array_equal(above(X), (X + 1) * 4)

    def replacement(x):
        return x + 10

    inner = mt.jit(replacement)
    np.testing.assert_array_equal(above(X), (X + 10) * 4)
    np.testing.assert_array_equal(above.configured(without=["all"])(X), (X + 10) * 4)


def test_recursion_is_refused() -> None:
    @mt.jit
    def again(x):
        return again(x) + 1

    @mt.jit
    def ping(x):
        return pong(x)

    @mt.jit
    def pong(x):
        return ping(x)

    assert failure(lambda: again(X)).code == failure(lambda: ping(X)).code == "MT0105"


def test_errors_point_into_the_function_that_is_wrong() -> None:
    @mt.jit
    def f(x):
        return composed.product(x, x)

    error = failure(lambda: f(np.ones((2, 3), np.float32)))
    assert error.code == "MT0203" and error.span is not None
    assert error.span.source.name == composed.__file__ and error.span.text == "x @ y"


def test_stages_lead_to_the_lines_of_each_function() -> None:
    @mt.jit
    def f(x: f32[N]):
        return composed.scaled(unit(x))

    names = {s.source.name for n in Trace(f.lower(N=8).compilation).nodes for s in n.spans}
    assert names == {__file__, composed.__file__}


# ---- constants ---------------------------------------------------------------------------------


def test_constants() -> None:
    low = -2

    @mt.jit
    def f(x):
        return reshape(astype(x, HALF), SHAPE) * low**2 + (1 if FLAG else 0)

    assert f(X).dtype == np.float16
    np.testing.assert_array_equal(f(X), X.reshape(2, 2) * 4 + 1)
    assert f.check(X).ok


@pytest.mark.parametrize("half", [np.float16, np.dtype("float16"), torch.float16, mt.f16])
def test_dtypes_and_numbers_of_other_libraries_are_constants(half: Any) -> None:
    low, three, yes = np.float32(-0.5), np.int64(3), np.bool_(True)

    @mt.jit
    def f(x):
        return astype(x, half) * low + (three if yes else 0), x.astype(np.float16)

    results = f(X)
    assert [r.dtype for r in results] == [np.float16, np.float16]
    np.testing.assert_array_equal(results[0], X * -0.5 + 3)


@pytest.mark.parametrize("zero", [-0.0, np.float32(-0.0)])
def test_a_constant_keeps_the_sign_of_zero(zero: Any) -> None:
    @mt.jit
    def f(x):
        return x / zero

    np.testing.assert_array_equal(f(np.array([1, -1], np.float32)), [-np.inf, np.inf])


def test_a_time_is_no_number() -> None:
    span = np.timedelta64(3, "s")

    def f(x):
        return x * span

    assert failure(lambda: mt.jit(f)(X)).code == "MT0101"


def test_a_changed_constant_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    @mt.jit
    def f(x: f32[N]):
        return x + EPS

    def seen() -> float:
        results = [f(X)[0], f.numpy(X)[0], f.run("tile", X)[0], f.bind(X)()[0]]
        assert len(set(results)) == 1
        return float(results[0])

    assert seen() == 0.5
    kept = f._variants
    monkeypatch.setitem(globals(), "EPS", float("0.5"))  # an equal number, but another object
    assert seen() == 0.5 and f._variants is kept
    monkeypatch.setitem(globals(), "EPS", 2)
    assert seen() == 2.0 and "number 2" in f.lower()["ast"]
    monkeypatch.setattr(composed, "SCALE", -1.0)
    np.testing.assert_array_equal(composed.scaled(X), -X)


def test_parameters_and_dimensions_hide_constants() -> None:
    @mt.jit
    def f(x: f32[N], EPS: f32[N]):  # here N is a dimension and EPS a parameter
        FLAG = x * N
        return FLAG + EPS

    np.testing.assert_array_equal(f(X, X), X * 4 + X)
    assert not f.watched


def test_a_default_value_is_fixed_at_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "EPS", 100.0)
    np.testing.assert_allclose(unit(X), X / np.sqrt((X * X).sum() + 0.5), rtol=1e-6)


def test_values_that_a_function_cannot_use_are_errors() -> None:
    thing, numbers, mask, kind, nested = composed.plain, [1, 2], np.ones(3), float, [[1], [2]]

    def calls(x):
        return thing(x)

    def listed(x):
        return x + numbers

    def array(x):
        return x * mask

    def program(x):
        return x * squares

    def converted(x):
        return astype(x, kind)

    def deep(x):
        return x + nested

    errors = [failure(lambda f=f: mt.jit(f)(X)) for f in (calls, listed, array, program, converted, deep)]
    assert [e.code for e in errors] == ["MT0101"] * 6 and all(e.span.source.name == __file__ for e in errors)
    assert errors[0].help == "decorate `thing` with `@mt.jit`"
    assert (
        "a list" in errors[1].message
        and "an ndarray" in errors[2].message
        and "make `mask` a parameter" in errors[2].help
    )
    assert errors[3].help == "`squares(…)`"
    assert errors[1].help == "write `numbers = (1, 2)`" and errors[4].help == "write `kind = mt.f64`"
    assert "make `nested` a parameter" in errors[5].help


def test_a_constant_may_change_while_threads_call() -> None:
    scope: dict[str, Any] = {"mt": mt, "K": 0}
    f = typed("@mt.jit\ndef f(x):\n    return x + K\n", "<cell 7>", scope)["f"]
    wrong: list[float] = []

    def call() -> None:
        for _ in range(20):
            low = scope["K"]
            got = float(f(X)[0])
            if not low <= got <= scope["K"]:
                wrong.append(got)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(1, 5):
        scope["K"] = k
    for thread in threads:
        thread.join()
    assert not wrong and float(f(X)[0]) == 4


def test_a_thread_that_calls_while_another_links_waits_for_the_new_constant() -> None:
    scope: dict[str, Any] = {"mt": mt, "K": 0}
    f = typed("@mt.jit\ndef f(x):\n    return x + K\n", "<cell 9>", scope)["f"]
    got, made = [float(f(X)[0])], Program.__init__
    other = threading.Thread(target=lambda: got.append(float(f(X)[0])))

    def slow(program: Program, *arguments: Any, **settings: Any) -> None:
        if program is f and not other.ident:
            other.start()
            other.join(0.3)  # the other thread has time for a call with the old module
        made(program, *arguments, **settings)

    scope["K"] = 1
    with patch.object(Program, "__init__", slow):
        got.append(float(f(X)[0]))
        other.join()
    assert got == [0, 1, 1]


# ---- the origin of a function's source text ------------------------------------------------------


def typed(text: str, name: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Runs a text as IPython or the prompt of Python 3.13 would: `linecache` knows its lines."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), scope)
    return scope


@pytest.mark.parametrize("name", ["<python-input-3>", "<ipython-input-2-abc>", "<cell 1>"])
def test_functions_of_cells_and_prompts_have_their_text(name: str) -> None:
    module = ModuleType("__main__")
    scope = typed("import minitri as mt\n@mt.jit\ndef f(x):\n    return x + 1\n", name, vars(module))
    np.testing.assert_array_equal(scope["f"](X), X + 1)
    error = failure(lambda: typed("@mt.jit\ndef g(x: 'f32[N]'):\n    return x + nothing\n", name, scope))
    assert str(error.span) == f"{name}:3:16"


def test_a_function_without_source_text_is_an_error() -> None:
    error = failure(lambda: exec("@mt.jit\ndef f(x):\n    return x", {"mt": mt}))
    assert error.code == "MT0003" and 'mt.compile("""def f(…): …""")' in error.help


def test_doctests() -> None:
    text = """
    >>> import minitri as mt
    >>> @mt.jit
    ... def f(x: "f32[N]"):
    ...     return x + 1
    >>> f
    <minitri program f(x: f32[N])>
    """
    test = doctest.DocTestParser().get_doctest(text, {}, "session", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("options", [["-q", "-i"], ["-q"]])
def test_the_prompt_of_python(options: list[str]) -> None:
    lines = ["import minitri as mt", "@mt.jit", "def f(x: 'f32[N]'):", "    y = x + 1", "    return y * 2", "", "f"]
    output = prompt(options, lines, until="<minitri program f(x: f32[N])>")
    assert "<minitri program f(x: f32[N])>" in output, output


def prompt(options: list[str], lines: list[str], until: str) -> str:
    """The output of Python's prompt in a terminal."""
    leader, follower = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "PYTHON_HISTORY": os.devnull, "HOME": "/nowhere"}
    process = subprocess.Popen(
        [sys.executable, *options], stdin=follower, stdout=follower, stderr=follower, env=env, close_fds=True
    )
    os.close(follower)
    output = b""
    try:
        for line in lines:
            os.write(leader, line.encode() + b"\n")
        while until.encode() not in output and select.select([leader], [], [], 60)[0]:
            output += os.read(leader, 1 << 16)
    except OSError:  # the other end has closed the terminal
        pass
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            os.close(leader)
    return output.decode(errors="replace")


# ---- expressions without types -------------------------------------------------------------------


def test_an_expression_takes_its_types_from_the_call() -> None:
    f = mt.compile("a * x + pi * exp(b)")
    assert [name for name, _ in f.parameters] == ["a", "x", "b"]
    np.testing.assert_allclose(f(2.0, X, X), 2 * X + np.float32(np.pi) * np.exp(X), rtol=1e-6)


def test_kernels_are_kept_by_dtype_and_rank() -> None:
    f = mt.compile("x + y")
    for x in (X, X.astype(np.float16), X.reshape(2, 2), np.arange(9, dtype=np.float32)):
        for _ in range(2):
            np.testing.assert_array_equal(f(x, x), x + x)
    assert len(f._graphs) == 3 and len(f._variants.kept) == 4


def test_stages_say_how_to_give_types() -> None:
    f = mt.compile("x + y")
    for error in (failure(f.lower), failure(lambda: f.lower(N=3)), failure(f.explore)):
        assert error.code == "MT0106" and 'x="f32[N]", y="f32[N]"' in error.help and "lower(x, y)" in error.help
    assert 'x: "f32[N]"' in failure(squares.lower).help
    assert f.lower(X, X)["graph"] == mt.compile("x + y", x="f32[n0]", y="f32[n0]").lower(n0=4)["graph"]


def test_mistakes_are_found_without_types() -> None:
    assert "softmax" in failure(lambda: mt.compile("sofmax(x)")).help
    assert "exp" in failure(lambda: mt.compile("np.exp(x)")(X)).help
    assert failure(lambda: mt.compile("x + y", x="f32[N]")).code == "MT0101"
