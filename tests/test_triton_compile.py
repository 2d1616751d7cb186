"""minitri runs Triton's compiler stages itself: the machine code equals `triton.compile`'s, and is cached on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.base.operators import OPERATORS
from minitri.hardware.targets import Target
from minitri.triton import cached_compile, compiled_stages
from minitri.triton.cached_compile import compile_options
from minitri.triton.emit import EmittedKernel

pytest.importorskip("triton")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Triton's cache folder, empty."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cached_compile._triton.cache_clear()
    return tmp_path


def given(text: str, target: str, **types: str) -> tuple[Any, EmittedKernel, Target]:
    low = mt.compile(text, **types).lower(target=target)
    (kernel,) = low.compilation.value("triton")
    function = compiled_stages.jit_functions(low["triton"])[kernel.name]
    return (
        compiled_stages.ast_source(function, kernel, compiled_stages.Kind.usual(kernel)),
        kernel,
        Target.parse(target),
    )


def on_disk(source: Any, kernel: Any, target: Target) -> Any:
    return cached_compile._on_disk(source, cached_compile.cache_name(source, kernel, target))


@pytest.mark.parametrize("target, binary", [("cuda:90", "cubin"), ("cuda:80", "cubin"), ("hip:gfx942", "hsaco")])
def test_machine_code_is_that_of_triton_compile(target: str, binary: str, kept: Path) -> None:
    import triton

    source, kernel, to = given("softmax(x, axis=-1)", target, x="bf16[64, 1000]")
    assert on_disk(source, kernel, to) is None
    ours = cached_compile.compiled(source, kernel, to)
    theirs = triton.compile(source, target=to.of_triton, options=compile_options(kernel, to))
    assert ours.asm[binary] == theirs.asm[binary] and set(ours.asm) >= {"ttir", "ttgir", "llir"}
    mine, their = ours.metadata._asdict(), theirs.metadata._asdict()
    assert mine | {"hash": ""} == {k: v for k, v in their.items() if k in mine} | {"hash": ""}
    assert ours.packed_metadata == theirs.packed_metadata


def test_compiled_kernels_are_read_from_the_cache(kept: Path) -> None:
    source, kernel, to = given("x + 1", "cuda:90", x="f32[100]")
    first = cached_compile.compiled(source, kernel, to)
    again = on_disk(source, kernel, to)
    assert again.kernel == first.kernel and again.metadata == first.metadata and again.hash == first.hash
    for other in (given("x + 2", "cuda:90", x="f32[100]"), given("x + 1", "cuda:80", x="f32[100]")):
        assert on_disk(*other) is None
    (cubin,) = kept.rglob("*.cubin")
    cubin.unlink()
    assert on_disk(source, kernel, to) is None
    assert cached_compile.compiled(source, kernel, to).kernel == first.kernel
    for about in kept.rglob("*.json"):
        about.write_text("{")
    assert cached_compile.compiled(source, kernel, to).kernel == first.kernel


def test_with_a_compilation_listener_triton_compile_runs(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    source, kernel, to = given("x + 1", "cuda:90", x="f32[100]")
    first = cached_compile.compiled(source, kernel, to)
    seen: list[Any] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **about: seen.append(about))
    assert cached_compile.compiled(source, kernel, to).kernel == first.kernel
    assert len(seen) == 1


def test_with_another_cache_manager_triton_compile_runs(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs
    from triton.runtime.cache import FileCacheManager

    managed: list[str] = []

    class Manager(FileCacheManager):
        def __init__(self, key: str, **more: Any) -> None:
            super().__init__(key, **more)
            managed.append(key)

    monkeypatch.setattr(knobs.cache, "manager_class", Manager)
    cached_compile.compiled(*given("x + 1", "cuda:90", x="f32[100]"))
    assert managed


@pytest.mark.parametrize("name", ["PTXAS_OPTIONS", "DISABLE_PTXAS_OPT", "DISABLE_LLVM_OPT", "TRITON_DEBUG"])
def test_environment_variables_are_part_of_the_cache_key(
    name: str, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, kernel, to = given("x + 1", "cuda:90", x="f32[100]")
    usual = cached_compile.key(source, kernel, to)
    monkeypatch.setenv(name, "-O0" if name == "PTXAS_OPTIONS" else "1")
    assert cached_compile.key(source, kernel, to) != usual
    monkeypatch.delenv(name)
    assert cached_compile.key(source, kernel, to) == usual


def test_settings_of_the_process_are_part_of_the_cache_key(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    source, kernel, to = given("exp(x)", "cuda:90", x="f32[100]")
    usual = cached_compile.compiled(source, kernel, to)
    with knobs.nvidia.scope():
        knobs.nvidia.disable_ptxas_opt = True
        other = cached_compile.compiled(source, kernel, to)
    assert other.kernel != usual.kernel and cached_compile.compiled(source, kernel, to).kernel == usual.kernel


def test_an_error_of_triton_is_reported(kept: Path) -> None:
    source, kernel, _ = given("x + 1", "cuda:90", x="f32[100]")
    with pytest.raises(CompileError, match="could not compile k0 for cuda:9000"):
        compiled_stages.compiled(source, kernel, Target("cuda", "9000"))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_small_copy_of_libdevice_has_the_functions_of_a_kernel(dtype: str, kept: Path) -> None:
    used = [o for o in OPERATORS.values() if any("libdevice" in text for text in o.templates.values())]
    calls = [f"{o.name}({', '.join('xy'[: o.arity])})" for o in used]
    assert len(calls) > 20
    source, kernel, to = given(
        " + ".join([*calls, "sqrt(x)", "floor(x)", "ceil(y)"]), "cuda:90", x=f"{dtype}[64]", y=f"{dtype}[64]"
    )
    assert "__CUDA_FTZ" not in cached_compile.compiled(source, kernel, to).asm["ptx"]
    (copy,) = kept.rglob("libdevice.ll")
    end = "f(" if dtype == "f32" else "("
    assert all(f"@__nv_{name}{end}" in copy.read_text() for name in ("tan", "atan2", "floor", "sqrt"))


def test_kernels_share_a_small_copy_of_libdevice(kept: Path) -> None:
    for text in ("exp(x)", "log(x) + tanh(x)", "x + 1"):
        cached_compile.compiled(*given(text, "cuda:90", x="f32[64]"))
    assert len([*kept.rglob("libdevice.ll")]) == 1
