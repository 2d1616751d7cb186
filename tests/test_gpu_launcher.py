"""The GPU launcher: which library's launcher starts a kernel, and with which arguments. Both are imitated without a
GPU.
"""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import minitri as mt
from minitri.hardware.targets import Target
from minitri.runtime import gpu_launcher
from minitri.runtime.gpu_launcher import NativeKernel, load
from minitri.triton import compiled_stages

ADD = {"p0": "*fp32", "p1": "*bf16", "s0": "i32", "s1": "i64", "a0": "fp64"}


class Compiled:
    """A kernel compiled by Triton. `by_triton` records the arguments of launches by Triton's launcher."""

    def __init__(self, signature: dict[str, str], scratch: int = 0, early: bool = False, **asm: bytes) -> None:
        about = {"name": "k0", "shared": 48, "num_warps": 4, "global_scratch_size": scratch, "profile_scratch_size": 0}
        about["launch_pdl"] = early
        self.metadata, self.src = SimpleNamespace(**about), SimpleNamespace(signature=signature)
        self.asm, self.function, self.packed_metadata = asm or {"cubin": b"code"}, 77, (4, 1, 48)
        self.by_triton: list[tuple[Any, ...]] = []

    @property
    def run(self) -> Any:
        return lambda *given: self.by_triton.append(given)

    def launch_metadata(self, *given: Any) -> str:
        return "about"


class Torchs:
    """An imitation of torch's launcher that records launches. `refuses`: it accepts no kernel."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses, self.launched, self.loaded = refuses, list[Any](), list[Any]()

    def _load_kernel(self, path: str, name: str, shared: int, device: int) -> tuple[int, int, int]:
        if self.refuses:
            raise RuntimeError("invalid argument")
        with open(path, "rb") as file:
            self.loaded.append((file.read(), name, shared, device))
        return 1234, 30, 0

    def _launch_kernel(self, *given: Any) -> None:
        self.launched.append(given)


@pytest.fixture
def torchs(monkeypatch: pytest.MonkeyPatch) -> Torchs:
    made = Torchs()
    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", made, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(gpu_launcher, "driver", lambda: None)
    return made


def test_torch_launches_usual_kernels(torchs: Torchs) -> None:
    compiled = Compiled(ADD)
    load(compiled, 3)(10, 99, (16, 32, 5, 2**40, 0.5))
    assert torchs.loaded == [(b"code", "k0", 48, 3)] and compiled.by_triton == []
    assert torchs.launched == [(1234, 10, 1, 1, 4, 48, "OOildOO", (16, 32, 5, 2**40, 0.5, None, None), 99)]


@pytest.mark.parametrize("compiled", [
    Compiled(ADD | {"desc0": "tensordesc<fp16[64, 64]>"}), Compiled(ADD, scratch=128), Compiled(ADD, hsaco=b"code"),
], ids=["descriptors", "scratch", "AMD"])  # fmt: skip
def test_triton_launches_kernels_that_torch_cannot(compiled: Compiled, torchs: Torchs) -> None:
    load(compiled, 0)(10, 99, (16, 32))
    ((*grid, stream, function, packed, _, _, _, first, second),) = compiled.by_triton
    assert (grid, stream, function, packed, first, second) == ([10, 1, 1], 99, 77, (4, 1, 48), 16, 32)
    assert not torchs.launched


def test_triton_launches_if_torch_fails_or_lacks_the_launcher(torchs: Torchs, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (Torchs(refuses=True), SimpleNamespace(_load_kernel=lambda *given: (1, 2)), SimpleNamespace(), None):
        monkeypatch.setattr(torch._C, "_StaticCudaLauncher", other)
        compiled = Compiled(ADD)
        load(compiled, 0)(1, 2, ())
        assert len(compiled.by_triton) == 1


def test_torch_starts_early_kernels_until_the_launcher_of_triton_is_made(
    torchs: Torchs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, captured = threading.Event(), [True]
    monkeypatch.setattr(gpu_launcher, "_prepare_launcher", lambda source, count: made.wait(10))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured[0])
    compiled = Compiled(ADD, early=True)
    start = load(compiled, 0)
    start(10, 99, (16, 32, 5, 2**40, 0.5))
    assert not compiled.by_triton and len(torchs.launched) == 1
    made.set()
    gpu_launcher.finish_launchers()
    start(10, 99, (16, 32))
    assert not compiled.by_triton and len(torchs.launched) == 2
    captured[0] = False
    start(10, 99, (16, 32))
    assert len(compiled.by_triton) == 1 and len(torchs.launched) == 2


@pytest.mark.parametrize("where", ["driver", "launcher"])
def test_without_a_c_compiler_a_kernel_starts_late(where: str, torchs: Torchs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")

    if where == "driver":
        monkeypatch.setattr(gpu_launcher, "driver", fails)
    else:
        monkeypatch.setattr(Compiled, "run", property(fails))
    compiled = Compiled(ADD, early=True)
    start = load(compiled, 0)
    gpu_launcher.finish_launchers()
    for _ in range(2):
        start(10, 99, (16, 32, 5, 2**40, 0.5))
    assert not compiled.by_triton and len(torchs.launched) == 2


def test_a_kernel_that_no_launcher_can_load_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernel then has a launcher but no function. It must not be loaded a second time."""
    asked: list[str] = []

    def fails(_: Compiled) -> None:
        asked.append("run")
        raise RuntimeError("Triton Error [CUDA]: out of memory")

    monkeypatch.setattr(torch._C, "_StaticCudaLauncher", Torchs(refuses=True), raising=False)
    monkeypatch.setattr(gpu_launcher, "driver", lambda: None)
    monkeypatch.setattr(Compiled, "run", property(fails))
    with pytest.raises(RuntimeError, match="out of memory"):
        load(Compiled(ADD, early=True), 0)
    assert asked == ["run"]


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profiler_sees_launches(hook: str, torchs: Torchs) -> None:
    from triton import knobs

    compiled = Compiled(ADD)
    start = load(compiled, 0)
    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(knobs.runtime, hook, print)
        start(1, 2, (3,))
    start(1, 2, (3,))
    assert len(compiled.by_triton) == len(torchs.launched) == 1
    first = hook == "launch_enter_hook"
    assert compiled.by_triton[0][-4:] == (("about", print, None, 3) if first else (None, None, print, 3))


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profiler_in_a_chain_sees_launches(hook: str, torchs: Torchs) -> None:
    from triton import knobs

    chain, compiled = getattr(knobs.runtime, hook), Compiled(ADD)
    if not hasattr(chain, "calls"):
        pytest.skip("this Triton has no chains")
    start = load(compiled, 0)
    chain.add(print)
    try:
        start(1, 2, (3,))
    finally:
        chain.remove(print)
    start(1, 2, (3,))
    assert len(compiled.by_triton) == len(torchs.launched) == 1 and chain in compiled.by_triton[0]


def test_too_much_shared_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    low = mt.compile("x + 1", x="f32[64]").lower(target="cuda:90")
    (kernel,) = low.compilation.value("triton")
    native = NativeKernel(compiled_stages.jit_functions(low["triton"])["k0"], kernel, Target.parse("cuda:90"))
    asked = SimpleNamespace(metadata=SimpleNamespace(shared=300_000))
    monkeypatch.setattr(compiled_stages, "compiled", lambda *given: asked)
    with pytest.raises(mt.CompileError, match="MT0404.*k0 asks for 300,000 bytes .* cuda:90 has 232,448") as caught:
        native.loaded(0, (16, 32), ())
    assert "fewer stages" in str(caught.value)


def test_the_launcher_of_a_kernel_with_descriptors_is_built_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    low = mt.compile("sum(x @ w)", x="f16[4096, 4096]", w="f16[4096, 4096]").lower(target="cuda:90")
    jitted, made = compiled_stages.jit_functions(low["triton"]), list[tuple[str, int]]()
    compiled = SimpleNamespace(metadata=SimpleNamespace(shared=0))
    monkeypatch.setattr(compiled_stages, "compiled", lambda *given: compiled)
    monkeypatch.setattr(gpu_launcher, "load", lambda compiled, device: object())
    monkeypatch.setattr(
        gpu_launcher, "_prepare_launcher", lambda source, count: made.append((source.fn.__name__, count))
    )
    for kernel in low.compilation.value("triton"):
        start = NativeKernel(jitted[kernel.name], kernel, Target.parse("cuda:90"))
        start.loaded(0, (16, 32, 48), ())
    assert made == [("k0", 2)]


@pytest.mark.parametrize("count, asked", [(1, False), (2, True)])
def test_with_one_gpu_the_current_device_is_not_queried(
    monkeypatch: pytest.MonkeyPatch, count: int, asked: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1, raising=False)
    assert gpu_launcher.current_device()() == int(asked)


def test_machine_code_is_cached_for_a_limited_number_of_argument_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_launcher, "MAX_KINDS", 3)
    monkeypatch.setattr(gpu_launcher, "load", lambda compiled, device: object())
    kernel = NativeKernel(None, cast(Any, None), Target.parse("cuda:90"))
    monkeypatch.setattr(kernel, "_compiled", lambda kind: kind)
    for addresses in itertools.product((16, 24), repeat=3):
        found = kernel.loaded(0, addresses, [])
        assert kernel.loaded(0, addresses, []) is found
    assert len(kernel._loaded) == 3
