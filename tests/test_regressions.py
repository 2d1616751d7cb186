"""Regression tests: each one is for a bug that was found in use. Docstrings say what was wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import minitri as mt
from minitri.cli.main import main
from minitri.hardware.targets import Target
from minitri.runtime import gpu_launcher, interpreter
from minitri.triton import cached_compile, compiled_stages

HERE = Path(__file__).parents[1]
SHAPES = [(7, 33), (1, 1), (0, 0), (2, 0), (0, 5), (5, 4)]


def ramp(*shape: int) -> Any:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def message(*args: Any, **types: Any) -> str:
    with pytest.raises(mt.CompileError) as caught:
        mt.compile(*args, **types)
    return str(caught.value)


def command(*args: str) -> Any:
    return CliRunner().invoke(main, args)


@pytest.mark.parametrize("text, function", [
    ("x / x[:, -1:]", lambda x: x / x[:, -1:]),
    ("x - x[:1]", lambda x: x - x[:1]),
    ("x[:, :1] * x[-1:]", lambda x: x[:, :1] * x[-1:]),
    ("x * x[0:1, 0:1]", lambda x: x * x[0:1, 0:1]),
])  # fmt: skip
@pytest.mark.parametrize("shape", SHAPES)
def test_a_slice_of_one_element_broadcasts(text: str, function: Any, shape: tuple[int, int]) -> None:
    x = ramp(*shape)
    program = mt.compile(text, x="f32[M, N]")
    wanted = function(x)
    assert program(x).shape == wanted.shape
    np.testing.assert_allclose(program(x), wanted, rtol=1e-6)
    assert program.check(x).ok


@pytest.mark.parametrize("text, wanted", [("x[1:2] + x", [3, 4, 5, 6]), ("x[-2:-1] * x", [3, 6, 9, 12])])
def test_a_slice_of_one_element_may_be_empty(text: str, wanted: list[int]) -> None:
    program = mt.compile(text, x="f32[N]")
    np.testing.assert_array_equal(program(ramp(4)), wanted)
    with pytest.raises(mt.CompileError):
        program(ramp(1))


HALVES = "def halves(x: f32[N, 2 * D]):\n    return x[:, :D] + x[:, D:] * D\n"


@pytest.mark.parametrize("type", ["f32[N, 2 * D]", "f32[N, 4]", "f32[N, K]"])
def test_a_callee_solves_for_its_dimensions(type: str) -> None:
    program = mt.compile(f"{HALVES}def f(x: {type}):\n    return halves(x)\n")
    x = ramp(3, 4)
    np.testing.assert_array_equal(program(x), x[:, :2] + x[:, 2:] * 2)
    assert program.check(x).ok


def test_a_callee_refuses_sizes_that_do_not_solve() -> None:
    program = mt.compile(f"{HALVES}def f(x: f32[N, K]):\n    return halves(x)\n")
    with pytest.raises(mt.CompileError, match="MT0207"):
        program(ramp(3, 5))
    program = mt.compile("def p(x: f32[N + 1]):\n    return x[1:]\ndef f(x: f32[K]):\n    return p(x)\n")
    assert program(ramp(1)).shape == (0,)
    with pytest.raises(mt.CompileError, match="too small"):
        program(ramp(0))


def test_a_callee_names_the_undetermined_dimension() -> None:
    text = "def p(x: f32[H * D]):\n    return x\ndef f(x: f32[N]):\n    return p(x)\n"
    assert "no argument tells the size of `H`" in message(text)


def test_one_size_for_a_star_dimension() -> None:
    result = command("run", "-e", "x + 1", "-t", "x=f32[*B]", "-D", "B=3", "-i", "x=arange")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("float32[3]")


def test_several_sizes_for_a_dimension_are_a_usage_error() -> None:
    result = command("run", "-e", "x", "-t", "x=f32[N]", "-D", "N=2,3")
    assert result.exit_code == 2 and "one dimension" in result.output


def test_a_file_determines_sizes_in_sums(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", ramp(6))
    result = command("run", "-e", "x[:N]", "-t", "x=f32[2 * N]", "-i", f"x={tmp_path / 'x.npy'}")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("float32[3]")


@pytest.mark.parametrize("text", ["x[4]", "reshape(x, (N // 2, 2))"])
def test_check_skips_sizes_that_a_program_refuses(text: str) -> None:
    result = command("check", "-e", text, "-t", "x=f32[N]")
    assert result.exit_code == 0, result.output
    assert " skipped  " in result.stdout


def test_out_of_memory_is_not_reported_as_a_bug() -> None:
    result = command("run", "-e", "zeros((100000, 100000, 100000)) + x", "-t", "x=f32[]", "--no-check")
    assert result.exit_code == 1 and "not enough memory" in result.stderr


@pytest.mark.parametrize(("text", "expected"), [
    ("x <> 2", "write `x != 2`"),
    ("x => 2", "write `x >= 2`"),
    ("x === 2", "write `x == 2`"),
    ("np.exp(x)", "without a prefix"),
    ("float(x)", "write `astype(x, f32)`"),
    ("f16(x)", "write `astype(x, f16)`"),
    ("len(x)", "write `x.shape[0]`"),
    ("max(x, x)", "write `maximum(x, x)`"),
    ("concat(x, x)", "write `concat((x, x))`"),
    ("stack([])", "stack takes one array or more"),
    ("x + y", 'parameters have types, as in y="f32[N]"'),
])  # fmt: skip
def test_a_message_says_what_to_write(text: str, expected: str) -> None:
    assert expected in message(text, x="f32[M, N]")


def test_the_message_has_the_limit_of_a_size() -> None:
    with pytest.raises(mt.CompileError, match=r"2\*\*40"):
        mt.compile("x", x="f32[N]").lower(N=2**40)


@pytest.mark.parametrize("text", [
    "sum(cumulative_sum(x, axis=1), axis=(0, 1))",
    "cumulative_sum(x, axis=1) * sum(x, axis=(0, 1))",
    "cumulative_sum(x, axis=0) * sum(x, axis=(0, 1))",
])  # fmt: skip
def test_a_running_sum_loops_over_its_axis_once(text: str) -> None:
    f = mt.compile(text, x="f32[M, N]")
    for shape in ((5, 37), (1, 3), (33, 2)):
        assert f.check(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3).ok


def test_a_running_sum_along_columns_compiles_for_any_sizes() -> None:
    """Triton 3.6 cannot compile a loop with a scan that also adds the sum of the block to an accumulator."""
    pytest.importorskip("triton")
    for text in ("cumulative_sum(x, axis=0)", "cumulative_prod(x, axis=1)"):
        assert mt.compile(text, x="f32[M, N]").lower()["ptx"]


def test_comparisons_of_booleans_have_bounds() -> None:
    """The bounds of == subtracted bools, which numpy refuses."""
    x = np.zeros((0, 3), bool)
    assert mt.compile("x == y", x="bool[N, M]", y="bool[N, M]").check(x, x).ok


def test_a_lone_index_may_be_any_number() -> None:
    """The evaluator of kernels warned of an overflow while it computed the index of an element that is never read."""
    x = np.ones(5, np.float32)[::2]
    for at in (-(2**63), 2**63 - 1):
        out = mt.compile("x[i]", x="f32[3]", i="i64[]").run("kernels", x, np.array(at))
        assert np.isnan(out)


def test_the_disk_cache_distinguishes_kernels_by_argument_types() -> None:
    pytest.importorskip("triton")
    keys: list[Any] = []
    for dtype in ("f32", "i8", "f64"):
        low = mt.compile("x + x", x=f"{dtype}[N]").lower(N=1000)
        (kernel,) = low.compilation.value("triton")
        for aligned in (0, 4):
            function = compiled_stages.jit_functions(low["triton"])[kernel.name]
            source = compiled_stages.ast_source(function, kernel, compiled_stages.Kind.of((0, aligned), ()))
            keys.append(json.dumps(cached_compile.key(source, kernel, Target("cuda", "90"))))
    assert len(set(keys)) == 6


def test_a_divisor_is_moved_out_of_a_sum_only_if_it_cannot_be_zero() -> None:
    """One term of the sum is 0 / 0, so the sum is nan. The sum of the numerators divided by 0 would be inf."""
    for text in (
        "sum(exp(x - max(x, axis=1, keepdims=True)) / max(x, axis=1, keepdims=True), axis=1)",
        "sum(exp(x - max(x, axis=1, keepdims=True)) * max(x, axis=1, keepdims=True), axis=1)",
        "(exp(x - max(x, axis=1, keepdims=True)) / max(x, axis=1, keepdims=True)) @ y",
    ):
        f = mt.compile(text, x="f32[M, N]", y="f32[N, K]").configured(options=mt.Options(blocks={"r": 16}))
        x = np.linspace(-9, 0, 80, dtype=np.float32).reshape(2, 40)[:, ::-1].copy()
        x[:, 0] = 0
        x[0, 30], x[1, 35] = -np.inf, -200
        y = np.ones((40, 16), np.float32)
        for stage in ("kernels", "tile.masked", "triton"):
            np.testing.assert_array_equal(
                np.isnan(f.run(stage, x, y)), np.isnan(f.numpy(x, y)), err_msg=f"{text} {stage}"
            )


def test_a_concat_of_thousands_lists_few_of_them() -> None:
    """The message of each part's condition listed all parts. For 4,000 parts that took 52 s, beyond every time limit."""
    many = ", ".join(["x"] * 2000)
    start = time.process_time()
    graph = mt.compile(f"concat(({many}))", x="f32[N, M]").lower()["graph"]
    assert time.process_time() - start < 10 and graph.count("%") >= 1
    said = message(f"concat(({many}, y))", x="f32[3]", y="f32[2, 2]")
    assert said.count("f32[3]") <= 10


def test_a_part_of_a_concat_without_the_axis_of_its_guard() -> None:
    """Every index of that axis needs the part, so it is read without the guard. The evaluator looked it up with the
    guard.
    """
    module = """\
def f(x: i64[N, M], w: bool[M, 3, N, M, K]):
    v = broadcast_to(x, (M, N, M))
    v = stack((v, v, v), axis=2)
    v = stack((v, v, v), axis=1)
    return logical_not(roll(v, 40, axis=3)) @ w
"""
    x, w = np.arange(2).reshape(1, 2), np.arange(24).reshape(2, 3, 1, 2, 2) % 5 == 0
    program = mt.compile(module)
    assert np.array_equal(program.run("kernels", x, w), program.numpy(x, w))


@pytest.mark.parametrize("m", [16, 17, 33, 64, 65, 200])
def test_short_columns_of_dependent_reductions_keep_their_loop(m: int) -> None:
    """Larger blocks turned the loop over short columns into registers. The accumulator for the old maximum was then
    missing.
    """
    low = mt.compile("exp2(softmax(x, axis=-2))", x="f64[N, M, 33]").lower(N=2, M=m)
    assert "def k0" in low["triton"]


def refused(text: str, x: Any, stage: str = "triton", type: str = "f32[N]") -> str:
    """The message of a refused call, which must be the same at every kind of stage."""
    with pytest.raises(mt.CompileError) as caught:
        mt.compile(text, x=type).run(stage, x)
    return str(caught.value)


@pytest.mark.parametrize("stage", ["ast", "kernels", "triton"])
@pytest.mark.parametrize("text", [
    "zeros(N - 5)", "sum(ones((N - 5, N - 4)))", "concat((x, zeros(N - 4)))", "eye(N, N - 5)", "eye(-1)",
    "broadcast_to(x[0], (N - 5,))", "reshape(x, (N - 6, 2 - N))",
])  # fmt: skip
def test_no_size_is_negative(text: str, stage: str) -> None:
    """sum(ones((-2, -1))) was 2, and a concat lost elements. Other programs raised numpy's own errors."""
    assert "MT0205" in refused(text, ramp(3), stage)


def test_a_message_shows_the_sizes_in_a_term() -> None:
    assert "^^^ N=3" in refused("zeros(N - 5)", ramp(3))
    assert "^^^ N=3" in refused("x + (N - 9)", np.ones(3, np.uint8), type="u8[N]")


@pytest.mark.parametrize("stage", ["ast", "graph", "triton"])
@pytest.mark.parametrize("text, size", [
    ("x * 2**(N - 8)", 5), ("x * 2**N", 63), ("x * (1 << N)", 64), ("x * (N * N * N * N)", 70_000),
])  # fmt: skip
def test_integers_of_dimensions_have_64_bits_at_every_stage(text: str, size: int, stage: str) -> None:
    """The reference computed with Python's integers and fractions. Kernels wrapped, or failed with an internal error."""
    assert "MT0208" in refused(text, np.ones(size, np.float32), stage)


@pytest.mark.parametrize("text", ["x * 2**N", "x * (1 << N)", "x * (-2)**N"])
def test_the_largest_powers_of_dimensions_are_right(text: str) -> None:
    program, x = mt.compile(text, x="f32[N]"), np.ones(62, np.float32)
    np.testing.assert_array_equal(program(x), np.full(62, 2.0**62, np.float32))
    np.testing.assert_array_equal(program(x), program.numpy(x))


@pytest.mark.parametrize("text", [
    "roll(x, (1, 2), axis=(0, 0))", "roll(x, (1, 2), axis=0)", "roll(x, (1, 2))", "roll(x, N, axis=0)",
    "roll(x, 1 - N // 2, axis=1)",
])  # fmt: skip
def test_shifts_of_a_roll_pair_with_axes_as_in_numpy(text: str) -> None:
    x = ramp(3, 5)
    wanted = eval(text, {"roll": np.roll, "x": x, "N": 5})
    np.testing.assert_array_equal(mt.compile(text, x="f32[M, N]")(x), wanted)


@pytest.mark.parametrize("text", ["x[[0, 2]]", "x[[0, -1], [1, 3]]", "x[:, [3, 0]]", "x[[[0], [2]], 1]"])
def test_a_list_is_an_index_array(text: str) -> None:
    """`x[[0, 2]]` was read as `x[0, 2]`."""
    x = ramp(3, 4)
    np.testing.assert_array_equal(mt.compile(text, x="f32[M, N]")(x), eval(text, {"x": x}))


def test_a_type_has_one_star_dimension() -> None:
    assert "MT0004" in message("x", x="f32[*B, *C]") and "MT0004" in message("x", x="f32[*B, *B]")


@pytest.mark.parametrize("type, size", [("f32[2 * N]", 5), ("f32[N + 1]", 0), ("f32[6 - 2 * N]", 10)])
def test_a_size_that_no_dimension_explains(type: str, size: int) -> None:
    """The message claimed that nothing determines N."""
    assert f"argument `x` has size {size} along axis 0, which is" in refused("x", np.ones(size, np.float32), type=type)


def test_the_default_of_a_float_is_a_number_when_compiled() -> None:
    assert "takes a float, not a string" in message("def f(x, s: float = 'a'):\n    return x * s\n")
    assert "by zero" in message("def f(x, s: float = 1 / 0):\n    return x * s\n")
    half = mt.compile("def f(x, s: float = 2**-1 - 0 * pi):\n    return x * s\n")
    np.testing.assert_array_equal(half(ramp(3)), half.numpy(ramp(3)))
    assert half(ramp(3))[0] == 0.5


def test_calls_with_arguments_that_are_no_text_or_size() -> None:
    for call in (lambda: mt.evaluate(3), lambda: mt.load(3)):  # type: ignore[arg-type]
        with pytest.raises(mt.CompileError, match="MT0003"):
            call()
    program = mt.compile("x", x="f32[N]")
    with pytest.raises(mt.CompileError, match="the stage of this text is not named"):
        mt.load(program.lower()["tile"])
    assert program.lower(N=np.int64(5)).sizes == {"N": 5}
    with pytest.raises(mt.CompileError, match="MT0304"):
        program.lower(N=np.True_)


def test_messages_of_calls_of_values_and_of_extremes_of_two_numbers() -> None:
    assert "`x` is a value, not a function" in message("x(1)", x="f32[N]")
    assert "maximum(N, 3)" in message("x * max(N, 3)", x="f32[N]")
    said = message("x * 1e308**2", x="f32[N]")
    assert "past all floats" in said and "Numerical" not in said


def test_a_full_disk_is_not_reported_as_a_bug(tmp_path: Any) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "minitri", "compile", "-e", "x + 1", "-t", "x=f32[N]"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(HERE)},
        )  # fmt: skip
    assert ended.returncode == 1 and "no space left" in ended.stderr and "bug" not in ended.stderr


def test_a_default_value_is_escaped_for_the_terminal() -> None:
    """The `ast` stage shows the text of a default value. It also showed an escape sequence in that text unchanged."""
    text = 'def f(x: f32[N], how="a\x1b]0;t\x07b"):\n    return x if how == "tanh" else x + 1\n'
    low = mt.compile(text).lower()
    assert "\x1b" not in low["ast"] and "\x07" not in low["ast"] and 'how = "a?]0;t?b"' in low["ast"]
    assert all(c.isprintable() or c == "\n" for stage in low.stages[:7] for c in low[stage])


@pytest.mark.parametrize("term", ["e", "e / l", "exp(y) / l"])
def test_an_f64_sum_does_not_share_the_loop_of_an_f32_reduction(term: str) -> None:
    """Programs with long rows did not compile, because the f64 sum was multiplied by an f32 correction."""
    text = (
        "def f(x: f32[M, N], y: f32[M, N]):\n    e = exp(x - max(x, axis=1, keepdims=True))\n"
        f"    l = sum(e, axis=1, keepdims=True)\n    return sum(astype({term}, f64), axis=1)\n"
    )
    f = mt.compile(text)
    for sizes in ({"M": 4096, "N": 100_000}, {"M": 2, "N": 1 << 20}):  # in one loop, and split
        assert "store out" in f.lower(**sizes)["tile"]
    assert f.check(ramp(2, 70) / 9, ramp(2, 70) / 99).ok


@pytest.mark.parametrize(
    "text", ["(x @ z)[:, 0] * sum(x, axis=1)", "mean(log(sum(exp(x), axis=1)) + max(x, axis=1) - (x @ z)[:, 0])"]
)
def test_a_column_of_a_product_beside_a_reduction_of_its_rows(text: str) -> None:
    """Both were put into one loop, in which a product has complete rows and columns or none: an AssertionError."""
    f = mt.compile(text, x="f32[M, N]", z="f32[N, K]")
    assert f.check(ramp(5, 7) / 9, ramp(7, 3) / 9).ok


def test_a_shift_that_is_gathered_may_vary() -> None:
    """The rows of w are gathered, and its columns are reduced. So no factor leads from one maximum to another one.
    Parts of a long row that used such a factor did not compile."""
    f = mt.compile(
        "sum(exp(x - (max(x, axis=1, keepdims=True) + w[i])), axis=1)", x="f32[M, N]", w="f32[V, N]", i="i64[M]"
    )
    assert "store out" in f.lower(M=3, N=8192, V=4)["tile"]
    assert f.check(ramp(3, 70) / 9, ramp(4, 70) / 99, np.array([1, 2, 3])).ok


def test_exp2_keeps_denormals_except_in_softmax() -> None:
    """On a GPU exp2(-127) of bf16 was 0. It took the instruction of softmax's exponentials, which may flush
    denormals.
    """
    pytest.importorskip("triton")

    def powers(text: str, dtype: str = "bf16") -> set[str]:
        lowered = mt.compile(text, x=f"{dtype}[M, N]", y=f"{dtype}[N, M]").lower(target="cuda:90", M=64, N=9000)
        return {word for word in ("rt.exp2", "libdevice.exp2") if word in lowered["triton"]}

    for text in ("exp2(x)", "exp2(2 * x - 3)", "exp2(x @ y)", "exp2(sum(x, axis=1))"):
        assert powers(text) == {"libdevice.exp2"}, text
    for text in ("softmax(x)", "softmax(x, axis=0)", "logsumexp(x)", "softmax(x @ y * 0.1) @ x"):
        assert powers(text) == {"rt.exp2"}, text
    assert powers("softmax(x) + exp2(x)") == {"rt.exp2", "libdevice.exp2"}
    assert "ex2.approx.ftz" not in mt.compile("exp2(x)", x="bf16[N]").lower(target="cuda:90", N=1000)["ptx"]


def test_triton_is_imported_before_threads_import_parts_of_it() -> None:
    """Two threads that each imported a part of triton could deadlock in the first call on a GPU."""
    code = """
import sys, contextlib, threading
import torch
from minitri.runtime import gpu_launcher
torch.cuda.device = contextlib.nullcontext
class Kernel:
    def loaded(self, *about):
        seen.append((threading.current_thread() is not threading.main_thread(), "triton.compiler.code_generator" in sys.modules))
seen = []
assert "triton" not in sys.modules
gpu_launcher.load_all([Kernel().loaded] * 2, "cuda:0")
print(seen)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[(True, True), (True, True)]\n"


def test_a_sum_over_an_empty_axis_is_not_split() -> None:
    """The length of its axis was divided by a number of parts that was 0."""
    for text in ("sum(x)", "argmax(x + 1, axis=0)", "logsumexp(x, axis=1)"):
        f = mt.compile(text, x="f32[M, N]")
        for sizes in ({"M": 5000, "N": 0}, {"M": 0, "N": 5000}, {"M": 0, "N": 0}):
            try:
                assert "store out" in f.lower(**sizes)["tile"]
            except mt.CompileError as error:
                assert error.code == "MT0209"


def test_one_driver_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton creates its driver on first use, without a lock. Two threads created two types of tensor maps."""
    from triton import runtime

    made: list[object] = []

    class Slow:
        default: object = None

        @property
        def active(self) -> object:
            if self.default is None:
                time.sleep(0.01)
                made.append(object())
                self.default = made[-1]
            return self.default

    monkeypatch.setattr(runtime, "driver", Slow())
    with ThreadPoolExecutor(8) as pool:
        assert len({id(d) for d in pool.map(lambda _: gpu_launcher.driver(), range(8))}) == len(made) == 1


def test_loops_with_computed_bounds() -> None:
    """numpy from 2.4 on does not convert an array of one element to a number. Triton's interpreter up to 3.8 needs
    it.
    """
    bound = SimpleNamespace(handle=SimpleNamespace(data=np.array([6])))
    assert (
        list(interpreter._range(1, bound, 2))
        == list(interpreter._Language(None).range(1, bound, 2, flatten=True))
        == [1, 3, 5]
    )
    f = mt.compile("softmax(where(arange(T)[:, None] >= arange(T), x @ x.T, -inf)) @ x", x="f32[T, 16]")
    f = f.configured(options=mt.Options({"i": 16, "r": 16}, persistent=2))
    x = ramp(70, 16) / 1000
    np.testing.assert_allclose(f(x), f.numpy(x), rtol=1e-5)


FAR_CONDITIONS = (  # of rows i and keys j
    "j - i >= 2147483000", "j >= i + 2147482600", "j + 2147482600 < i", "abs(i - j) < 2147483720", "i - j < -2147483699",
    "i >= j + 3000000000", "i - 3000000000 <= j", "abs(i - j) < 9223372036854775807", "i + 9223372036854775800 >= j",
    "abs(i - j - 2147483640) <= 2147483640", "(i >= j) & (j - i >= -2147483000)", "i + 536870911 >= j", "i - 536870913 >= j",
)  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("condition", FAR_CONDITIONS)
def test_masks_of_attention_far_from_0(condition: str, known: bool) -> None:
    """Bounds of loops were computed from any number in 32 bits, so rows outside the array were read. A sum that wraps
    at
    64 bits was treated like one that does not."""
    n, size = 200, "200" if known else "N"
    mask = condition.replace("i", f"arange({size})[:, None]").replace("j", f"arange({size})")
    f = mt.compile(f"softmax(where({mask}, q @ k.mT, -inf)) @ v", **{x: f"f32[{size}, 16]" for x in "qkv"})
    f = f.configured(options=mt.Options({"i": 16, "r": 16}))
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(n, 16)).astype(np.float32) for _ in "qkv"]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(f(*given), f.numpy(*given), rtol=1e-4, atol=1e-4)
    assert f.lower(target="cuda:90", **({} if known else {"N": 1 << 20}))["ttir"]


@pytest.mark.parametrize("text", [
    "arange(2147483600, 2147483700)", "x + arange(2147483600, 2147483700)", "arange(2147483600, 2147483700) // 7",
    "where(arange(2147483600, 2147483700) > 2147483640, x, -1)", "take(x, arange(2147483600, 2147483700) - 2147483600)",
    "where(arange(N * 21474836, N * 21474836 + N) > 2147483640, x, 1)", "where(arange(2**40, 2**40 + 100) > 2**40 + 5, x, 1)",
    "where(arange(-2147483700, -2147483600) < -2147483640, x, -1)", "where(abs(arange(-2147483648, -2147483548)) < 0, x, 1)",
    "where(-arange(-2147483648, -2147483548) < 0, x, 1)",
])  # fmt: skip
def test_ranges_that_begin_far_from_0(text: str) -> None:
    """The range of an index did not include the constant that is added to it. So the addition had only 32 bits."""
    f, x = mt.compile(text, x="f32[N]"), np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(f(x), f.numpy(x))
    report = f.check(x)
    assert report.ok, report


def test_a_tile_that_a_store_makes_too_large() -> None:
    """The stored tile has an axis that the value lacks. The error blamed the pass that lowers the program."""
    f = mt.compile("cumsum(broadcast_to(arange(70000), (3, 70000)), axis=-1) + 0 * x", x="i64[3, 1]")
    f = f.configured(options=mt.Options({"i": 8192, "j": 1024}))
    with pytest.raises(mt.CompileError, match="MT0404"):
        f(np.zeros((3, 1), np.int64))


@pytest.mark.parametrize(("text", "types", "sizes"), [
    ("sum(x, axis=1)", {"x": "f32[M, N]"}, {"M": 1 << 36, "N": 3}),
    ("x @ w", {"x": "f16[M, K]", "w": "f16[K, N]"}, {"M": 1 << 36, "K": 64, "N": 4}),
])  # fmt: skip
def test_explaining_a_long_axis_takes_little_memory(text: str, types: dict[str, str], sizes: dict[str, int]) -> None:
    """To choose a few block indices, a list of all of them was made."""
    f = mt.compile(text, **types)
    f.explain(**{name: 64 for name in sizes})  # fills the caches
    tracemalloc.start()
    try:
        assert "in bounds" in f.explain(**sizes)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    ["pad(astype(x, i32), 2)[i]", "concat([astype(x, u8), ones((3,), u8)])[i]", "sum(pad(astype(x, bool), 2)[i])"],
)
def test_padding_of_a_converted_and_gathered_array(text: str) -> None:
    """A load gives NaN where its index is out of range. An integer conversion of this NaN gave a wrong value."""
    f = mt.compile(text, x="f32[5]", i="i64[8]")
    x, i = np.array([1, 2, 3, 0, 5], np.float32), np.arange(-4, 4)
    np.testing.assert_array_equal(f(x, i), f.numpy(x, i))
    report = f.check(x, i)
    assert report.ok, report


def test_the_dividend_of_a_reshaped_index_may_need_64_bits() -> None:
    """A kernel with 4.9e9 intermediate values used 32 bits. Its offsets were small, but not the numbers they are
    divided from.
    """
    n = 70000
    x, y = np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
    f = mt.compile(
        "def f(x: f32[M], y: f32[M]):\n    return sum(reshape(x[:, None] * y, (49000, 100000))[::4901, ::1000], axis=-1)\n"
    )
    place = np.arange(49000)[::4901, None] * 100000 + np.arange(100000)[::1000]
    np.testing.assert_allclose(f(x, y), (x[place // n] * y[place % n]).sum(-1), rtol=1e-4, atol=1e-4)


def test_argmax_takes_the_first_of_equal_scores_in_a_split_loop() -> None:
    """If a loop over products is split, its last piece runs first. A later block must then not win a tie."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=s).astype(np.float16) for s in ((16, 16), (40, 16), (40, 16)))
    scores = "minimum(q @ k.mT, 1.0)"
    f = mt.compile(
        f"def f(q: f16[16, 16], k: f16[40, 16], v: f16[40, 16]):\n    return softmax({scores}, axis=-1) @ v, argmax({scores}, axis=-1)\n"
    )
    f = f.configured(options=mt.Options({"i": 16, "r": 16}))
    wanted = np.argmax(np.minimum((q.astype(np.float32) @ k.T.astype(np.float32)).astype(np.float16), 1), axis=-1)
    np.testing.assert_array_equal(f(q, k, v)[1], wanted)
    report = f.check(q, k, v)
    assert report.ok, report


@pytest.mark.parametrize("text", [
    "(w >> 4).astype(f16)", "(w >> w).astype(f16)", "(w << 4).astype(f16)", "(w // 3).astype(f16)", "(w % 3).astype(f16)",
    "(w & 15).astype(f16)", "(-w).astype(f16)", "abs(w).astype(f16)", "maximum(w, 3).astype(f16)", "(w ** 2).astype(f16)",
    "where(w > 3, w, 7).astype(f16)", "clip(w, -3, 3).astype(f16)", "sign(w).astype(f16)", "max(w, axis=1).astype(f16)",
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_computed_bytes_are_converted_to_halves(text: str, dtype: str) -> None:
    """A right shift gave 32 bits instead of 8. The conversion, which takes four bytes at a time, then ended the
    process.
    """
    if dtype == "u8" and ("-" in text or "clip" in text):
        return
    f = mt.compile(text, w=f"{dtype}[M, N]")
    rng = np.random.default_rng(0)
    limits = mt.base.types.DTYPES[dtype].limits
    report = f.check(rng.integers(*limits, (9, 33)).astype(mt.base.types.DTYPES[dtype].numpy))
    assert report.ok, report
    for target in ("cuda:80", "cuda:90"):
        assert f.lower(target=target, M=100, N=96)["ptx"]


def test_a_single_row_of_a_centred_product_is_not_fused_into_a_loop() -> None:
    """Only one row of the product is needed. The check of loops that reductions and products share allowed it, and
    building the kernel failed with an AssertionError.
    """
    f = mt.compile(
        """
        def f(w: f16[17, 5], z: f16[5, 40], a: f16[40]):
            c = w @ z
            return einsum("...ij,j->...i", c - mean(c, axis=-1, keepdims=True), a)[0]
        """
    )
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in ((17, 5), (5, 40), (40,))]
    report = f.check(*arrays)
    assert report.ok, report


def test_minus_one_next_to_an_empty_axis_is_an_error_if_no_size_fits() -> None:
    """Sizes that both shapes have were removed, and the rest was divided with a remainder. The result of a program of
    `f32[0]` had the shape [0, 2, 0], but the reference had [0, 2, 1].
    """
    for shape in ("x.shape[0] // 2, 2, -1", "x.shape[0], 2, -1"):
        assert "MT0205" in message(f"x.reshape({shape})", x="f32[0]")
    assert "no size fits -1" in message("x.reshape(x.shape[0], 2, -1)", x="f32[N]")
    assert mt.compile("x.reshape(x.shape[0], -1)", x="f32[N, 4]")(np.zeros((0, 4), np.float32)).shape == (0, 4)
    f = mt.compile("x.reshape(x.shape[0], -1, 3)", x="f32[M, N]")  # the reference did not divide by 3
    assert f(np.zeros((0, 33), np.float32)).shape == f.numpy(np.zeros((0, 33), np.float32)).shape == (0, 11, 3)


DIVIDED = {  # a text with a dimension that may be divided by zero, and the sizes of x for which it is
    "mean(x.reshape(N // 2, 2, -1), axis=-1)": ((1, 2), (0, 2)),  # was not compiled: TypeError
    "arange(N // (N // 2)) + x[0, 0]": ((1, 1), (1, 5)),  # a call was a TypeError
    "x * (N % (N // 2))": ((1, 2), (0, 2)),  # the graph raised ZeroDivisionError, kernels computed 1
    "x[M // (M // 2) - 1:]": ((3, 1), (3, 0)),
}


@pytest.mark.parametrize("text", DIVIDED)
def test_a_dimension_divided_by_zero_is_a_diagnostic(text: str) -> None:
    f = mt.compile(text, x="f32[N, M]")
    np.testing.assert_allclose(f(np.ones((4, 2), "f4")), f.numpy(np.ones((4, 2), "f4")))
    for shape in DIVIDED[text]:
        for stage in ("ast", "graph", "kernels", "triton"):
            with pytest.raises(mt.CompileError, match="MT020[58]"):
                f.run(stage, np.ones(shape, np.float32))


def test_a_type_that_divides_by_a_dimension_of_size_zero() -> None:
    of_parameter = mt.compile("x + y", x="f32[N // M]", y="f32[M, N]")
    with pytest.raises(mt.CompileError, match="MT0304.*N//M divides by 0"):
        of_parameter(np.ones(0, np.float32), np.ones((0, 3), np.float32))
    function = "def g(a: f32[A], b: f32[A // B], c: f32[B]):\n    return sum(a) + sum(b) + sum(c)\n"
    of_argument = mt.compile(f"{function}def f(x: f32[N], z: f32[M]):\n    return g(x, x, z)\n")
    with pytest.raises(mt.CompileError, match="MT0207"):
        of_argument(np.ones(3, np.float32), np.ones(0, np.float32))
    assert of_argument(np.ones(3, np.float32), np.ones(1, np.float32)) == 7


SCANS_THAT_START_LATER = (  # the scan began at the first element that another operation needs, without the elements before it
    "pad(cumulative_sum(x, axis=1)[:, 1:], ((0, 0), (1, 0)))", "concat((y, cumulative_sum(x, axis=0)[3:]))",
    "pad(cumulative_max(x, axis=1)[:, 1:-1], ((0, 0), (2, 2)))", "concat((x[:, :3], cumulative_prod(x, axis=1)[:, 3:]), axis=1)",
    "pad(tril(cumulative_sum(x[:5], axis=1)[:, 2:]), ((0, 0), (2, 0)))", "cumulative_sum(pad(cumulative_sum(x, axis=1)[:, 1:], ((0, 0), (1, 0))), axis=1)",
    "softmax(pad(cumulative_max(x, axis=1)[:, 2:], ((0, 0), (2, 1))), axis=1)", "pad(cumulative_sum(x, axis=0)[2:], ((1, 0), (1, 1)))",
    "concat((y, reshape(broadcast_to(cumulative_sum(y[0])[None, :], (3, 7)), (21,))[3:17][None, :7]))",
    "concat((y[0, :5], reshape(broadcast_to(cumulative_sum(y[0])[None, :], (3, 7)), (21,))[3:]))[:9]",
    "pad(cumulative_sum(x, axis=1)[:, 1:] * y[0, 1:], ((0, 0), (1, 0))), cumulative_sum(x, axis=1)",
)  # fmt: skip


@pytest.mark.parametrize("text", SCANS_THAT_START_LATER)
def test_a_scan_contains_the_elements_before_the_first_one_that_is_needed(text: str) -> None:
    x, y = np.random.default_rng(0).integers(1, 4, (2, 6, 7)).astype(np.float32)
    given = {"x": x, "y": y} if "y" in text else {"x": x}
    report = mt.compile(text, **dict.fromkeys(given, "f32[6, 7]")).check(*given.values())
    assert report.ok, report


@pytest.mark.parametrize(
    ("length", "start", "before"), [(1, 0, 0), (1, 1, 1), (7, 1, 1), (7, 3, 1), (7, 1, 3), (9, 9, 2)]
)
def test_a_scan_of_unknown_length_that_is_sliced_and_padded(length: int, start: int, before: int) -> None:
    f = mt.compile(f"pad(cumulative_sum(x)[{start}:], (({before}, 0),))", x="f32[N]")
    assert f.check(np.arange(1, length + 1, dtype=np.float32)).ok


def test_a_scan_of_which_a_gather_picks_elements() -> None:
    """The elements that the gather does not need were left out of the sum."""
    f = mt.compile("stack((a, cumulative_sum(v)[:7]))[k, arange(7)]", a="f32[7]", v="f32[9]", k="i64[7]")
    assert f.check(np.arange(7, dtype=np.float32), np.arange(1, 10, dtype=np.float32), np.arange(7) % 2).ok


@pytest.mark.parametrize("padded", ["pad(v, ((1, 0),))", "concat((full((1,), 7.0), v))"])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_size_that_is_0_decides_where_padding_ends(padded: str, n: int) -> None:
    """N is the length of a reduced axis, which may be empty, so it must not count as at least 1."""
    f = mt.compile(f"def f(v: f32[K], x: f32[M, N]):\n    return {padded}[N:] + sum(x, axis=1)\n")
    assert f.check(np.arange(1, 6, dtype=np.float32), np.ones((6 - n, n), np.float32)).ok


@pytest.mark.parametrize("reduction", ["sum", "cumulative_sum"])
def test_a_broadcast_in_a_kernel_with_a_divided_axis_keeps_its_axis(reduction: str) -> None:
    f = mt.compile(f"{reduction}(broadcast_to(reshape(x.mT, (6,))[:, None], (6, 2)), axis=1)", x="f32[2, 3]")
    assert f.check(np.arange(6, dtype=np.float32).reshape(2, 3)).ok


@pytest.mark.parametrize(
    "condition", ["roll(arange(32), 5)", "tile(arange(16), 2)", "arange(32) // 2", "arange(32) % 7"]
)
def test_a_condition_on_a_quotient_does_not_skip_its_test(condition: str) -> None:
    """The block skipping took a test of r//2 for one that holds everywhere."""
    text = f"sum(where((({condition})[None, :] <= 10) & (arange(32)[None, :] <= arange(32)[:, None]), x, 0), axis=1)"
    f = mt.compile(text, x="f32[32, 32]").configured(options=mt.Options(blocks={"i": 4, "r": 4}))
    assert f.check(np.random.default_rng(0).random((32, 32), np.float32)).ok


@pytest.mark.parametrize("factor", ["x", "exp(-x)"])
def test_padding_of_a_split_sum_is_no_factor_of_an_exponential(factor: str) -> None:
    """x is padded with -inf for the exponential, and 0 * -inf is nan."""
    f = mt.compile(f"sum(exp(x - max(x)) * {factor})", x="f32[100003]")
    assert f.check(np.random.default_rng(0).normal(size=100003).astype(np.float32)).ok


@pytest.mark.parametrize("h", ["2 * max(x, axis=1, keepdims=True)", "abs(max(x, axis=1, keepdims=True))"])
def test_exponentials_of_part_of_a_row_do_not_overflow(h: str) -> None:
    f = mt.compile(f"sum(exp(x - {h}), axis=1)", x="f32[2, 300]").configured(options=mt.Options(blocks={"r": 16}))
    assert f.check(np.stack([np.linspace(-100, -60, 300, dtype=np.float32)] * 2)).ok


def test_an_exponent_that_differs_between_elements_is_not_corrected_in_a_loop() -> None:
    x = np.random.default_rng(0).normal(size=(3, 300)).astype(np.float32) * 9
    f = mt.compile(
        "sum(exp(x - where(b, max(x, axis=1, keepdims=True), 0)), axis=1)", x="f32[3, 300]", b="bool[3, 300]"
    )
    assert f.configured(options=mt.Options(blocks={"r": 16})).check(x, x[::-1] < 1).ok
