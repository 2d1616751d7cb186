"""Properties that only a GPU shows: streams, replayed calls, the general variant, scalars in full precision."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import minitri as mt
from minitri.runtime.array_interop import view

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape and a.device == b.device
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_a_repeated_call_reads_its_own_tensors() -> None:
    f = mt.compile("softmax(x + y, axis=-1)", x="f32[M, N]", y="f32[N]")
    for _ in range(4):
        x, y = rand(33, 77), rand(77)
        close(f(x, y), torch.softmax(x + y, -1))
    assert len(f._replays.kept) == 1


def test_a_tensor_for_a_number_is_read_at_each_call() -> None:
    f = mt.compile("x * n", x="f32[N]", n="int")
    x = torch.ones(5, device="cuda")
    for n in (2, 2, 2, 3, 2):
        close(f(x, torch.tensor(n)), x * n)


def test_alternating_calls_have_their_own_shapes() -> None:
    f = mt.compile("x + y[0]", x="f32[N]", y="f32[M]")
    shapes = [33, 33, 33, 64, 33, 33, 64, 64, 64, 33]
    for n in shapes:
        for x, y in ((rand(n), rand(n)), (rand(n + 1)[1:], rand(n)), (rand(2 * n)[::2], rand(n))):
            close(f(x, y), x + y[0])
            close(f(x, y=y), x + y[0])
    x = rand(33).requires_grad_()
    close(f(x, rand(33).zero_()).detach(), x.detach())
    with torch.inference_mode():
        close(f(x, rand(33).zero_()), x.detach())


def test_after_many_shapes_the_general_variant_runs() -> None:
    f = mt.compile("layer_norm(x @ w, g, b)", x="f32[M, K]", w="f32[K, N]", g="f32[N]", b="f32[N]")
    for k in range(14):
        x, w, g, b = rand(17 + 5 * k, 9 + 7 * k), rand(9 + 7 * k, 40 + k), rand(40 + k), rand(40 + k)
        expected = torch.nn.functional.layer_norm((x.double() @ w.double()).float(), (40 + k,), g, b)
        close(f(x, w, g, b), expected, 2e-4)
    assert len(f._variants.kept) <= 10


def test_general_variant_takes_any_strides() -> None:
    f = mt.compile("x * 2 + y", x="f32[M, N]", y="f32[M, N]")
    for n in range(1, 16):
        x, y = rand(n + 3, 2 * n)[:, ::2], rand(n, n + 3).T
        close(f(x, y), x * 2 + y)
        close(f(x, y[:1].expand(n + 3, n)), x * 2 + y[:1])


def test_scalars_keep_full_precision_and_do_not_recompile() -> None:
    f = mt.compile("def f(x: f64[N], a: float = 0.1) -> f64[N]:\n    return x * a\n")
    x = torch.ones(5, device="cuda", dtype=torch.float64)
    assert f(x)[0].item() == 0.1
    for a in (1 / 3, 2, 1e300, float("inf"), -0.0):
        assert f(x, a)[0].item() == float(a)
    assert f(x, a=1 / 7)[0].item() == 1 / 7
    assert f(x, torch.tensor(1 / 9, dtype=torch.float64))[0].item() == 1 / 9
    assert len(f._variants.kept) == 1


def test_runs_on_the_current_stream() -> None:
    f = mt.compile("x + 1", x="f32[N]")
    x = torch.zeros(1 << 20, device="cuda")
    f(x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        y = x
        for _ in range(10):
            y = f(y)
    stream.synchronize()
    assert (y == 10).all()


def test_bind_launches_on_the_same_tensors() -> None:
    f = mt.compile("x + y", x="f32[N]", y="f32[N]")
    x, y = rand(1000), rand(1000)
    launch = f.bind(x, y)
    close(launch(), x + y)
    x.fill_(3.0)
    close(launch(), x + y)


def test_a_handle_keeps_its_outputs() -> None:
    f = mt.compile("x + y, sum(x * y)", x="f32[N]", y="f32[N]")
    x, y = rand(100_000), rand(100_000)
    launch = f.bind(x, y)
    first = launch()
    y.fill_(1.0)
    again = launch()
    assert first[0] is again[0]
    close(again[0], x + 1)
    close(again[1], x.sum(), 1e-2)


def test_every_alignment_has_its_own_code() -> None:
    """The tensors of a replayed call may start at any address."""
    f = mt.compile("x * 2 + y", x="f32[N]", y="f32[N]")
    base = rand(5000)
    for _ in range(2):
        for i, j in ((0, 0), (1, 0), (0, 1), (3, 2), (4, 8), (0, 0)):
            x, y = base[i : i + 4096], base[j : j + 4096]
            close(f(x, y), x * 2 + y)


@pytest.mark.parametrize("text", ["x + y", "softmax(x * y, axis=-1)", "sum(x) + sum(y, axis=0), x @ y.T"])
def test_captured_calls(text: str) -> None:
    f = mt.compile(text, x="f32[M, N]", y="f32[M, N]")
    x, y = rand(129, 200), rand(129, 200)
    run = f.capture(x, y)
    for value in (1.0, -2.0):
        x.fill_(value)
        found, wanted = run(), f(x, y)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
            assert torch.equal(a, b)


def test_torch_can_capture_a_call() -> None:
    """A call can be captured in a CUDA graph of torch, like torch's own calls."""
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    x = rand(64, 100)
    f(x), f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    x.normal_()
    graph.replay()
    assert torch.equal(y, f(x))


def test_threads_and_streams() -> None:
    f = mt.compile("x * 2 + sum(x, axis=0)", x="f32[M, N]")

    def work(seed: int) -> bool:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for k in range(30):
                x = torch.randn(50 + k % 3, 64 + seed, device="cuda", generator=generator)
                if not torch.allclose(f(x), x * 2 + x.sum(0), atol=1e-4):
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_two_gpus() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    for _ in range(3):
        for device in ("cuda:1", "cuda:0"):
            x = torch.randn(33, 77, device=device)
            close(f(x), torch.softmax(x, -1))
    x = torch.randn(33, 77, device="cuda:1")
    close(f.bind(x)(), torch.softmax(x, -1))
    close(f.capture(x)(), torch.softmax(x, -1))


@pytest.mark.parametrize("text", ["x + 1", "softmax(x, axis=-1)", "sum(x)", "sum(x, axis=0), sum(x, axis=1) @ x"])
def test_a_call_allocates_the_memory_of_its_plan(text: str) -> None:
    """A call allocates the outputs and the temporaries of the launch plan, nothing else."""
    f = mt.compile(text, x="f32[M, N]")
    x = rand(2048, 3000)
    first = _peak(lambda: f(x))  # the first call also allocates memory that later calls use again
    run, call = f.prepare(x)
    made = [*run.plan.temporaries, *run.plan.outputs]
    sizes = [math.prod(e.evaluate(call.sizes) for e in b.shape) * b.dtype.bytes for b in made]
    wanted = _peak(lambda: [torch.empty(n, dtype=torch.int8, device="cuda") for n in sizes])
    assert _peak(lambda: f(x)) == wanted and first == wanted


def _peak(run: Callable[[], object]) -> int:
    gc.collect()  # else the memory of earlier tests may be freed while `run` is measured
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


class Described:
    """An array of another library. It gives its address, says that it is read-only, and names its stream."""

    def __init__(self, tensor: torch.Tensor, stream: torch.cuda.Stream | None = None) -> None:
        self.tensor, self.stream = tensor, stream

    @property
    def __cuda_array_interface__(self) -> object:
        about = dict(self.tensor.__cuda_array_interface__)
        return about | {"data": (about["data"][0], True), "stream": self.stream and self.stream.cuda_stream}


def test_arrays_of_other_libraries_are_not_copied() -> None:
    f = mt.compile("x * 2", x="f32[M, N]")
    x = rand(40, 50)
    assert view(Described(x[:, ::2]), "x").address == x.data_ptr()
    close(f(Described(x[:, ::2])), x[:, ::2] * 2)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x += 1
    close(f(Described(x, stream)), x * 2)  # both after the work on the stream
    with pytest.raises(mt.CompileError, match="cuda_array_interface"):
        f(type("Broken", (), {"__cuda_array_interface__": {"shape": 3}})())


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, torch, minitri as mt\n"
        "from minitri.triton import cached_compile as c\n"
        "compiled, real = [], c._new\n"
        "c._new = lambda *a: (compiled.append(1), real(*a))[1]\n"
        "x = torch.randn(100, 300, device='cuda')\n"
        "y = mt.compile('softmax(x, axis=-1)', x='f32[M, N]')(x)\n"
        "torch.testing.assert_close(y, torch.softmax(x, -1))\n"
        "print(len(compiled))\n"
    )
    environment = {**os.environ, "MINITRI_CACHE_DIR": str(tmp_path / "ours"), "TRITON_CACHE_DIR": str(tmp_path / "its")}
    counts = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert [c.strip() for c in counts] == ["1", "0"]


def test_inputs_are_not_written_and_outputs_are() -> None:
    f = mt.compile("concat([x, x[::-1]]) * 1", x="f32[N]")
    for n in (0, 1, 7, 1000, 1025):
        x = rand(n)
        before = x.clone()
        torch.empty(2 * n + 64, device="cuda").fill_(float("nan"))
        close(f(x), torch.cat([before, before.flip(0)]))
        close(x, before)


def test_split_reductions_are_right_and_repeatable() -> None:
    for text, expected in (
        ("sum(x)", lambda x: x.sum()), ("sum(x, axis=0)", lambda x: x.sum(0)), ("max(x)", lambda x: x.max()),
        ("mean(x, axis=0)", lambda x: x.mean(0)), ("all(x > -9)", lambda x: (x > -9).all()),
    ):  # fmt: skip
        f = mt.compile(text, x="f32[M, N]")
        for shape in ((4099, 130), (100_003, 3), (3, 100_003)):
            x = rand(*shape)
            close(f(x), expected(x.double()).to(expected(x).dtype), 1e-4)
            assert torch.equal(f(x), f(x))


def test_more_than_two_to_the_31_elements() -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GB")
    f = mt.compile("x + 1", x="i8[M, N]")
    x = torch.zeros(70_000, 40_000, device="cuda", dtype=torch.int8)
    y = f(x)
    assert bool((y[-1] == 1).all()) and bool((y[35_000] == 1).all())
    del y
    g = mt.compile("sum(x, axis=1)", x="i8[M, N]")
    assert bool((g(x) == 0).all())


SHORT = {"float32": "f32", "bfloat16": "bf16", "int8": "i8"}


@pytest.mark.parametrize("dtype", list(SHORT))
@pytest.mark.parametrize("n", [(1 << 20) - 1, (1 << 20) + 1, 1000003, 1000004])
def test_the_last_tile_of_odd_arrays(n: int, dtype: str) -> None:
    x = torch.randint(-50, 50, (n + 1,), device="cuda").to(getattr(torch, dtype))
    f = mt.compile("x + y - 1", **dict.fromkeys("xy", f"{SHORT[dtype]}[N]"))
    assert (" peeled" in f.lower(x[:n], x[:n])["tile"]) is (n * x.element_size() % 16 > 0)
    for shifted in (x[:n], x[1:]):  # the second one starts at no multiple of 16 bytes
        assert torch.equal(f(x[:n], shifted), x[:n] + shifted - 1)


def test_half_precision_is_rounded_once() -> None:
    f = mt.compile("(x * y + z) * x", x="bf16[N]", y="bf16[N]", z="bf16[N]")
    x, y, z = (rand(5000, dtype=torch.bfloat16) for _ in range(3))
    exact = ((x.float() * y.float() + z.float()) * x.float()).bfloat16()
    assert torch.equal(f(x, y, z), exact)


def test_f32_products_are_not_tf32() -> None:
    f = mt.compile("x @ w", x="f32[M, K]", w="f32[K, N]")
    x, w = rand(300, 500), rand(500, 200)
    exact = x.double() @ w.double()
    error = (f(x, w).double() - exact).norm() / exact.norm()
    assert error < 1e-6


@pytest.mark.parametrize("m, k, n", [(96, 200, 72), (16, 4096, 256), (2048, 2048, 2056)])
def test_tf32_products_are_rounded_to_nearest(m: int, k: int, n: int) -> None:
    f = mt.compile('matmul(x, w, precision="tf32")', x="f32[M, K]", w="f32[K, N]")
    x, w = rand(m, k), rand(k, n)
    exact = x.double() @ w.double()
    error = (f(x, w).double() - exact).norm() / exact.norm()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        peer = ((x @ w).double() - exact).norm() / exact.norm()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert 1e-4 < error < 1.1 * max(peer, 2.8e-4)  # truncation instead of rounding would give 8e-4


def test_devices_are_checked() -> None:
    f = mt.compile("x + y", x="f32[N]", y="f32[N]")
    with pytest.raises(mt.CompileError, match="different devices"):
        f(rand(4), torch.zeros(4))


def test_minus_zero_is_kept() -> None:
    f = mt.compile("x * (-0.0), where(x > 1, x, -0.0)", x="f32[N]")
    a, b = f(torch.ones(3, device="cuda"))
    assert a.signbit().all() and b.signbit().all()


def test_numpy_scalars_can_be_passed_with_tensors() -> None:
    f = mt.compile("x * s", x="f32[N]", s="f32[]")
    x = rand(5)
    close(f(x, np.float32(3)), x * 3)
    close(f(x, 2.0), x * 2)
    close(mt.compile("s * x", s="f32[]", x="f32[N]")(np.float32(3), x), x * 3)


# ---- one loop ----------------------------------------------------------------------------

ATTENTION = (
    "def f({0}):\n    return softmax(where(arange(T)[:, None] >= arange(S), q @ k.mT * D**-0.5, -inf), axis=-1) @ v\n"
)


@pytest.mark.parametrize("d", [64, 80, 128, 256])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_attention(dtype: str, d: int) -> None:
    """One kernel, whose error against f64 is not larger than that of torch's attention."""
    kinds = ", ".join(f"{n}: {dtype}[B, H, {length}, D]" for n, length in (("q", "T"), ("k", "S"), ("v", "S")))
    f = mt.compile(ATTENTION.format(kinds))
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[dtype]
    q, k, v = (rand(2, 3, 500, d, dtype=kind) for _ in range(3))
    exact = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), is_causal=True)
    own = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    error, theirs = ((x.double() - exact).abs().max().item() for x in (f(q, k, v), own))
    assert error <= 1.5 * theirs + 1e-6, (error, theirs)


@pytest.mark.parametrize("t", [1024, 1100])
def test_attention_with_tensor_descriptors(t: int) -> None:
    """Rows that fill their last block and rows that do not; keys that no descriptor reads."""
    kinds = ", ".join(f"{n}: bf16[B, H, {length}, D]" for n, length in (("q", "T"), ("k", "S"), ("v", "S")))
    f = mt.compile(f"def f({kinds}):\n    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v\n")
    q, k, v = (rand(4, 32, n, 64, dtype=torch.bfloat16) for n in (t, 1024, 1024))
    wide = rand(4, 32, 1024, 65, dtype=torch.bfloat16)
    for keys in (k, wide[..., :64], wide[..., 1:]):
        exact = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, keys, v)))
        own = torch.nn.functional.scaled_dot_product_attention(q, keys, v)
        error, theirs = ((x.double() - exact).abs().max().item() for x in (f(q, keys, v), own))
        assert error <= 1.5 * theirs + 1e-6, (error, theirs)


def test_attention_allocates_only_its_result() -> None:
    kinds = ", ".join(f"{n}: bf16[B, H, {length}, D]" for n, length in (("q", "T"), ("k", "S"), ("v", "S")))
    f = mt.compile(ATTENTION.format(kinds))
    q, k, v = (rand(1, 2, 32768, 64, dtype=torch.bfloat16) for _ in range(3))
    f(q, k, v)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = f(q, k, v)
    assert torch.cuda.max_memory_allocated() - before <= 2 * result.numel() * result.element_size()


DECODE = """
def f(q: bf16[B, H, T, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D], n: i32[B]):
    s = where(arange(S) < n[:, None, None, None], q @ k.mT * D**-0.5, -inf)
    return softmax(s, axis=-1) @ v, logsumexp(s, axis=-1)
"""


@pytest.mark.parametrize("keys", [4096, 4099, 32768])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_few_rows_and_many_keys(keys: int, d: int) -> None:
    """Parts of the keys are computed apart and combined; some lengths leave parts empty. The error against f64 is not
    larger than torch's, results are equal in each call, and little memory is needed beside the result."""
    f = mt.compile(DECODE)
    q, k, v = (rand(3, 2, length, d, dtype=torch.bfloat16) for length in (8, keys, keys))
    n = torch.tensor([keys, 700, 0], device="cuda", dtype=torch.int32)
    seen = (torch.arange(keys, device="cuda") < n[:, None])[:, None, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    exact, own = (attend(*(x.to(t) for x in (q, k, v)), attn_mask=seen) for t in (torch.float64, torch.bfloat16))
    result, total = f(q, k, v, n)
    error, theirs = ((x[:2].double() - exact[:2]).abs().max().item() for x in (result, own))
    assert error <= 1.5 * theirs + 1e-6, (error, theirs)
    assert result[2].isnan().all() and (total[2] == -math.inf).all()
    scores = (q.double() @ k.double().mT * d**-0.5).masked_fill(~seen, -math.inf)
    close(total[:2].double(), scores.logsumexp(-1)[:2], 1e-2)
    assert all(torch.equal(a, b) for a, b in zip(f(q[:2], k[:2], v[:2], n[:2]), f(q[:2], k[:2], v[:2], n[:2])))


@pytest.mark.parametrize(
    "shape, axis", [((64, 256, 4096), (0, 2)), ((8, 1 << 20), 1), ((100_000, 64), 0), ((4096, 131072), 1)]
)
def test_moments_in_one_read(shape: tuple[int, ...], axis: int | tuple[int, ...]) -> None:
    names = ", ".join("MNK"[: len(shape)])
    f = mt.compile(f"mean(x, axis={axis}), var(x, axis={axis})", x=f"f32[{names}]")
    x = rand(*shape) + 1000
    mean, var = f(x)
    exact = x.double()
    close(mean.double(), exact.mean(axis), 1e-5)
    close(var.double(), exact.var(axis, correction=0), 1e-3)


def test_the_explorer_measures_kernels() -> None:
    from click.testing import CliRunner
    from test_explore import data

    from minitri.cli.main import main

    words = "explore examples/softmax.mt -D M=4096 -D N=4096 --measure --panes resources -o -".split()
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.stderr
    (program,) = data(result.stdout)["programs"]
    graph, *kernels = program["figures"]["kernels"]
    assert graph["measured"] is None and kernels and all(0.5 * k["floor"] < k["measured"] < 0.1 for k in kernels)


def test_the_benchmark_measures_a_case_and_host_times() -> None:
    """The table of host times started child processes with a module that no longer existed."""
    words = [sys.executable, "-m", "minitri", "bench", "add f32", "--host"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr
    assert "host time a call" in done.stdout and "first result" in done.stdout
