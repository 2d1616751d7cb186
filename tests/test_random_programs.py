"""Random well-typed programs: every stage agrees, optional passes can be left out, and kernels compile."""

from __future__ import annotations

import random

import pytest
from program_coverage import CONSTRUCTS, coverage, shown as table_of
from short_profile import numbers
from stages import SPLITS

from minitri.runtime.call_binding import bind
from minitri.testing import RandomProgram, random_program
from minitri.testing.small_random_programs import TABLE, SmallWriter
from minitri.triton.compiled_stages import build
from minitri.trust.check_passes import check

LIGHT, FULL = 30, 1000
LIGHT_AOT, FULL_AOT = 20, 300


@pytest.mark.slow
def test_every_construct_occurs() -> None:
    """In 1,500 programs. `python -m pytest -rP` shows the table."""
    found = coverage(random_program(seed) for seed in range(1500))
    print(table_of(found))
    names = [name for group in CONSTRUCTS.values() for name in group]
    assert len(names) > 120 and not (missing := [n for n in names if not found[n]]), missing


def test_a_missing_construct_is_noticed() -> None:
    found = coverage(random_program(seed) for seed in range(5))
    assert 0 in [found[name] for name in CONSTRUCTS["operators"]] and found["add"] <= 5


def fits(kind: str, form: str, seed: int) -> bool:
    rng = random.Random(seed)
    writer = SmallWriter(rng.choice)
    for _ in range(2):
        writer.array(rng.choice(("f32", "i32", "f16")), writer.new_axes(rng.randrange(4)))
    return writer.attempt(kind, writer.operand(writer.kinds[kind]), form)


@pytest.mark.parametrize("kind", TABLE["kinds"])
def test_every_form_fits_some_value(kind: str) -> None:
    for form in (form for forms in TABLE["kinds"][kind].values() if isinstance(forms, list) for form in forms):
        assert any(fits(kind, form, seed) for seed in range(100)), form


def shown(example: RandomProgram) -> str:
    return f"{example.text}\n{example.sizes}"


@pytest.mark.parametrize("seed", numbers(LIGHT, FULL))
def test_every_stage_agrees(seed: int) -> None:
    example = random_program(seed)
    report = example.compile().check(*example.arguments(seed))
    assert report.ok, f"{shown(example)}\n{report}"


@pytest.mark.parametrize("seed", numbers(LIGHT // 3, FULL // 3))
def test_passes_can_be_left_out(seed: int) -> None:
    example = random_program(10_000 + seed)
    call = bind(example.compile().function, example.arguments(seed), {})
    for without in (("fusion",), ("simplify",), ("collapse-axes", *SPLITS)):
        report = check(example.compile(without=without), call, ("interpreter", "cuda"))
        assert report.ok, f"without {without}: {shown(example)}\n{report}"


@pytest.mark.parametrize("seed", numbers(LIGHT_AOT, FULL_AOT))
def test_every_kernel_compiles_ahead_of_time(seed: int) -> None:
    example = random_program(20_000 + seed)
    program = example.compile()
    compilation = program.lower(*example.arguments(seed), target="cuda:90").compilation
    made = build(compilation.module_text, compilation.value("triton"), compilation.context.target)
    assert len(made) == len(compilation.value("triton")) and all("ptx" in built.asm for built in made)


@pytest.mark.gpu
@pytest.mark.parametrize("block", range(40))
def test_the_gpu_agrees(block: int) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    for seed in range(30_000 + 5 * block, 30_005 + 5 * block):
        example = random_program(seed)
        report = example.compile().check(*example.arguments(seed))
        gpu = next(r for r in report.rows if r.stage == "gpu")
        assert report.ok and "not run" not in gpu.note, f"{shown(example)}\n{report}"
