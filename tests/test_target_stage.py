"""The stage `tile.target`, the input of the emitter: its text, when read again, gives the same Triton source."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from test_proofs import LIBRARY
from test_structure import modules

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.testing import random_program
from minitri.tiles.text import format_programs, parse_programs
from minitri.triton.emit import emit

TARGETS = ("cuda:90", "cuda:80", "hip:gfx942", "interpreter")
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
FEW = 12  # random programs; the slow test has more
PRODUCT = {"x": "f16[1024, 512]", "w": "f16[512, 1024]"}
BLOCKS = mt.Options({"i": 64, "j": 64, "r": 64}, warps=4, stages=3, descriptors=True, persistent=16, registers=128)
DECISIONS: dict[str, tuple[str, dict[str, str], mt.Options, str]] = {  # a piece of the stage's text
    "descriptors": ("x @ w", PRODUCT, BLOCKS, "descriptor = [64, 64]"),
    "registers": ("x @ w", PRODUCT, BLOCKS, "registers 128"),
    "merged loops": ("x @ w", PRODUCT, BLOCKS, " flattened"),
    "a wait": ("relu(x) @ w", PRODUCT, mt.Options(), "{wait = true}"),
    "f16 products": ("x @ (w.astype(f16) * s)", {**PRODUCT, "w": "i8[512, 1024]", "s": "f16[1024]"}, mt.Options(), ": f16[j, r] = multiply"),
    "small integers": ("where(arange(64)[:, None] >= arange(64), x, 0)", {"x": "f32[64, 64]"}, mt.Options(), ": i32[i] = position"),
    "fast operators": ("softmax(x)", {"x": "bf16[100, 1000]"}, mt.Options(), "{fast = true}"),
    "a cache": ("sum(x, axis=0)", {"x": "f32[4096, 4096]"}, mt.Options(), "evict_first = true"),
    "an early start": ("sum(x)", {"x": "f32[1001, 999]"}, mt.Options(), " early_start"),
    "parts": ("softmax(q @ k.mT) @ k", dict.fromkeys("qk", "f16[64, 4096, 64]"), mt.Options(), "in_parts = true"),
}  # fmt: skip


def assert_complete(f: mt.Program) -> None:
    """The Triton source and the launch plan from the stage and from its text are equal, for every target."""
    for target in TARGETS:
        low = f.lower(target=target)
        text = low["tile.target"]
        read = parse_programs(text, masked=True)
        assert format_programs(read) == text
        for kernel, again in zip(low.compilation.value("triton"), map(emit, read), strict=True):
            assert again.source == kernel.source
            for name in ("tiles", "sizes", "descriptors"):
                assert str(getattr(again, name)) == str(getattr(kernel, name)), name
            for name in ("warps", "stages", "registers", "relaxed", "early_start"):
                assert getattr(again.program, name) == getattr(kernel.program, name), name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    assert_complete(mt.compile(path))


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library(name: str) -> None:
    text, types = LIBRARY[name]
    assert_complete(mt.compile(text, **types))


def test_random_programs() -> None:
    for seed in range(FEW):
        assert_complete(random_program(seed).compile())


@pytest.mark.slow
def test_more_random_programs() -> None:
    for seed in range(FEW, 1000):
        assert_complete(random_program(seed).compile())


@pytest.mark.parametrize("name", DECISIONS)
def test_the_stage_text_has_every_decision(name: str) -> None:
    text, types, options, wanted = DECISIONS[name]
    f = mt.compile(text, options=options, **types)
    assert wanted in f.lower(target="cuda:90")["tile.target"]
    assert wanted not in f.lower(target="cuda:90")["tile.masked"] or name == "registers"
    assert_complete(f)


def test_a_program_can_be_loaded_from_the_stage() -> None:
    f = mt.compile("softmax(x @ w, axis=1)", x="f16[70, 64]", w="f16[64, 48]")
    given = [np.random.default_rng(0).normal(size=s).astype(np.float16) for s in ((70, 64), (64, 48))]
    low = f.lower(*given, target="cuda:90")
    loaded = mt.load(low["tile.target"], "tile.target", against=f)
    assert loaded.lower(*given, target="cuda:90")["triton"] == low["triton"]
    assert loaded.check(*given).ok
    np.testing.assert_array_equal(loaded.run("tile.target", *given), f.run("tile.target", *given))


def test_arrays_that_are_not_aligned_have_no_descriptors() -> None:
    f = mt.compile("x @ w", options=BLOCKS, **PRODUCT)
    text = f.lower(target="cuda:90")["tile.target"]
    shifted = np.zeros(1024 * 512 + 1, np.float16)[1:].reshape(1024, 512)
    aligned = np.zeros((512, 1024), np.float16)
    loaded = mt.load(text, "tile.target")
    assert "desc0" in loaded.lower(shifted.copy(), aligned, target="cuda:90")["triton"]
    assert "desc0" not in loaded.lower(shifted, aligned, target="cuda:90")["triton"]


WRONG: dict[str, tuple[str, str, str]] = {  # old text, new text, and a part of the error
    "a hint of another op": ("load x[i] {", "load x[i] {fast = true, ", "`fast` is no hint for a Load"),
    "a block of another size": ("load x[i] {", "load x[i] {descriptor = [4], ", "a tensor descriptor of [4]"),
    "a check that no descriptor makes": ("mask = [i < 1001]", "descriptor = [2048], mask = [i < 7]", "a tensor descriptor of [2048]"),
    "a hint with a number": ("load x[i] {", "load x[i] {fast = 1, ", "one of true is wanted here"),
    "an unknown hint": ("load x[i] {", "load x[i] {evict_last = true, ", "`evict_last` is no attribute"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_inconsistent_texts_are_refused(name: str) -> None:
    old, new, message = WRONG[name]
    f = mt.compile("x * 2", options=mt.Options({"i": 2048}), x="f32[1001]")
    text = f.lower(target="cuda:90")["tile.target"]
    assert old in text
    with pytest.raises(CompileError) as error:
        mt.load(text.replace(old, new), "tile.target")
    assert message in error.value.message


def test_a_descriptor_gives_zeros_past_the_end_of_its_array() -> None:
    f = mt.compile("x @ w", options=BLOCKS, x="f16[100, 72]", w="f16[72, 80]")
    assert "descriptor = [64, 64]" in f.lower(target="cuda:90")["tile.target"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = [np.ones(s, np.float16) for s in ((100, 72), (72, 80))]
        assert (f.run("tile.target", *given) == 72).all()


def test_the_emitter_knows_no_optimisation_and_no_chip() -> None:
    """This holds for the emitter and its imports from minitri/triton. Workarounds are passes that run before it."""
    todo, seen = ["triton.emit"], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for module in (i.module.removeprefix("minitri.") for i in modules()[name].imports):
            found = module if module in modules() else module.rpartition(".")[0]
            if found != "hardware.targets":  # the alignment for descriptors is the same on every chip
                assert not found.startswith(("optimize", "hardware", "triton.workarounds")), f"{name} imports {found}"
            todo += [found] if found.startswith("triton.") else []
    assert "triton.expressions" in seen
