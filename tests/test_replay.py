"""Replayed calls with an imitated GPU: what they allocate, which recorded call they take, and what they launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import minitri as mt
from minitri.base.dims import Dim
from minitri.base.types import bool_, f32
from minitri.graph.ir import contiguous
from minitri.kernels.ir import Buffer
from minitri.runtime import replay as replays
from minitri.runtime.replay import Replay, again_like


class Gpu:
    """Device 0 of two. `started` lists (device, kernel, programs, stream, arguments) of each launch."""

    def __init__(self) -> None:
        self.current, self.started = 0, list[tuple[Any, ...]]()

    def kernel(self, name: str) -> Any:
        return lambda programs, stream, given: self.started.append((self.current, name, programs, stream, given))

    def device(self, other: int) -> Any:
        gpu, before = self, self.current

        class Switched:
            def __enter__(self) -> None:
                gpu.current = other

            def __exit__(self, *about: Any) -> None:
                gpu.current = before

        return Switched()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(replays, "current_device", lambda: lambda: made.current)
    monkeypatch.setattr(replays, "current_stream", lambda: lambda device: 100 + device)
    monkeypatch.setattr(replays, "on_device", lambda model: made.device(0))
    monkeypatch.setattr(torch.cuda, "device", made.device)
    monkeypatch.setattr(
        "torch._C._dynamo.guards._empty_strided_cuda",
        lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype),
    )
    return made


def buffer(name: str, dtype: Any = f32, *shape: int) -> Any:
    return Buffer(name, dtype, (size := tuple(map(Dim.of, shape))), contiguous(size), "output")


def launch(
    gpu: Gpu, name: str, pointers: list[str], programs: int = 4, numbers: tuple[int, ...] = (), **more: Any
) -> Any:
    kernel = SimpleNamespace(
        pointers=[buffer(p) for p in pointers], scalars=[buffer(s) for s in more.get("floats", ())], descriptors=()
    )
    step = SimpleNamespace(kernel=kernel)
    return SimpleNamespace(step=step, programs=programs, numbers=numbers, start=lambda: gpu.kernel(name))


def replay(
    gpu: Gpu, launches: list[Any], outputs: list[Any], temporaries: tuple[Any, ...] = (), **floats: Any
) -> Replay:
    """A replay of a program with the parameters x and y."""
    plan = SimpleNamespace(temporaries=temporaries, outputs=outputs)
    model = SimpleNamespace(owner=SimpleNamespace(device=SimpleNamespace(index=0)))
    call = SimpleNamespace(model=model, sizes={}, arrays={"x": None, "y": None})
    return Replay(SimpleNamespace(plan=plan, call=call, launches=launches), floats)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(3, 5), (), (0,), (2, 0, 3), (1,)])
def test_one_kernel_with_one_output(gpu: Gpu, shape: tuple[int, ...]) -> None:
    again = replay(gpu, [launch(gpu, "k0", ["y", "out", "x"], numbers=(7,))], [buffer("out", bool_, *shape)])
    for _ in range(2):
        out = again([16, 32], ())
        assert out.shape == shape and out.dtype == torch.bool and out.is_contiguous()
        assert gpu.started.pop() == (0, "k0", 4, 100, (32, out.data_ptr(), 16, 7)) and not gpu.started


def test_several_kernels_temporaries_and_outputs(gpu: Gpu) -> None:
    launches = [
        launch(gpu, "k0", ["x", "t0"]), launch(gpu, "k1", ["y"], programs=0),
        launch(gpu, "k2", ["t0", "y", "b", "a"], 9, (3, 4)),
    ]  # fmt: skip
    again = replay(gpu, launches, [buffer("a", f32, 2), buffer("b", f32, 3)], (buffer("t0", f32, 4),))
    a, b = again([16, 32], ())
    (_, first, _, _, (x, temporary)), second = gpu.started
    assert (first, x) == ("k0", 16) and a.shape == (2,) and b.shape == (3,)
    assert second == (0, "k2", 9, 100, (temporary, 32, b.data_ptr(), a.data_ptr(), 3, 4))


def test_an_empty_output_launches_nothing(gpu: Gpu) -> None:
    out = replay(gpu, [launch(gpu, "k0", ["x", "out"], programs=0)], [buffer("out", f32, 0, 3)])([16, 32], ())
    assert out.shape == (0, 3) and not gpu.started


def test_floats_come_from_the_call_or_their_default(gpu: Gpu) -> None:
    again = replay(gpu, [launch(gpu, "k0", ["x", "out"], floats=("c",))], [buffer("out", f32, 2)], c=(2, 0.5))
    for args, wanted in (((None, None, 3), 3.0), ((None, None), 0.5)):
        out = again([16, 32], args)
        assert gpu.started.pop()[-1] == (16, out.data_ptr(), wanted)


@pytest.mark.parametrize("outputs", [1, 2])
def test_another_device_is_current(gpu: Gpu, outputs: int) -> None:
    made = [buffer(f"out{k}", f32, 2) for k in range(outputs)]
    again = replay(gpu, [launch(gpu, "k0", ["x", "out0"])], made)
    gpu.current = 1
    again([16, 32], ())
    assert gpu.started[0][:4] == (0, "k0", 4, 100) and gpu.current == 1


def test_only_a_call_like_the_one_before_is_replayed(gpu: Gpu) -> None:
    x, y = torch.randn(4), torch.randn(4)
    first = replay(gpu, [launch(gpu, "k0", ["x", "y", "out"])], [buffer("out", f32, 4)])
    again = again_like((x, y), [x.data_ptr(), y.data_ptr()], first)
    assert again is not None
    out = again((y, x))
    assert gpu.started.pop()[-1] == (y.data_ptr(), x.data_ptr(), out.data_ptr())
    assert again((x, torch.randn(5))) is None and again((x,)) is None and not gpu.started
    gpu.current = 1
    out = again((x, y))
    assert gpu.started.pop() == (0, "k0", 4, 100, (x.data_ptr(), y.data_ptr(), out.data_ptr())) and gpu.current == 1


def test_guards_are_made_once_for_the_second_similar_call(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(replays, "again_like", lambda *given: made.append(given) or again_like(*given))
    f = mt.compile("x + y", x="f32[N]", y="f32[N]")
    for current, x in (
        (0, torch.randn(8)),
        (1, torch.randn(9)),
    ):  # the second one is on a GPU that is not the current one
        gpu.current, started = current, len(gpu.started)
        first = replay(gpu, [launch(gpu, "k0", ["x", "y", "out"])], [buffer("out", f32, 8)])
        key, _ = replays.call_key((x, x.clone())) or ((), [])
        f._replays.kept[key] = first
        for calls in range(5):
            f(x, x.clone())
            assert len(made) == current + (calls > 0)
        assert len(gpu.started) == started + 5


def test_a_replay_is_found_for_keywords_and_integers(gpu: Gpu) -> None:
    f = mt.compile("x * c + y", x="f32[N]", y="f32[N]", c="float")
    x, y = torch.randn(8), torch.randn(8)
    order = [n for n, _ in f.parameters]
    assert order == ["x", "y", "c"]
    key, _ = replays.call_key((x, y, 2.5), {2}) or ((), [])
    f._replays.kept[key] = replay(
        gpu, [launch(gpu, "k0", ["x", "y", "out"], floats=("c",))], [buffer("out", f32, 8)], c=(2, 0.0)
    )
    for args, named, c in (
        ((x, y, 3), {}, 3.0), ((x, y), {"c": 4}, 4.0), ((), {"c": -5, "y": y, "x": x}, -5.0), ((x,), {"c": 0.5, "y": y}, 0.5),
    ):  # fmt: skip
        f(*args, **named)
        assert gpu.started.pop()[-1][:2] + (c,) == (x.data_ptr(), y.data_ptr(), c) and not gpu.started
    before = dict(f._replays.kept)
    for args, named in (((x, y), {"d": 1}), ((x, y, 1), {"c": 1}), ((x,), {"c": 1}), ((x, y, 1, 2), {})):
        with pytest.raises(mt.CompileError, match="MT0301"):
            f(*args, **named)
    assert dict(f._replays.kept) == before


def test_integers_that_no_float_represents_are_not_replayed_as_floats() -> None:
    x = torch.randn(8)
    keys = [replays.call_key((x, n), {1}) for n in (2.0, 7, -(2**53) + 1, True, 2**53, 10**400)]
    found = [k[0][-2:] for k in keys if k is not None]
    assert found[0] == found[1] == found[2] and len(set(map(str, found))) == 4
    assert replays.call_key((x, 7)) != replays.call_key((x, 8))


def test_calls_that_guards_cannot_distinguish_are_not_tried_again(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(replays, "again_like", lambda *given: made.append(given))
    f, x = mt.compile("x + y", x="f32[N]", y="f32[N]"), torch.randn(8)
    key, _ = replays.call_key((x, x)) or ((), [])
    f._replays.kept[key] = replay(gpu, [launch(gpu, "k0", ["x", "y", "out"])], [buffer("out", f32, 8)])
    for _ in range(5):
        f(x, x)
    assert len(made) == 1 and len(gpu.started) == 5
