"""Error messages about names of other libraries, such as `median(x)`, `np.average(x)` or `x.real`."""

from __future__ import annotations

import keyword
import re

import numpy as np
import pytest
from short_profile import numbers

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.graph.unknown_names import function_names
from minitri.language.ast import CONSTANTS
from minitri.language.foreign.names import table


def refusal(text: str, **types: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        mt.compile(text, types=types or {"x": "f32[M, N]"})
    assert caught.value.span is not None
    return caught.value


@pytest.mark.parametrize("start", numbers(1, 3))
@pytest.mark.parametrize("prefix", ["", "np.", "torch.", "jnp."])
def test_a_guess_never_wins_over_a_name_of_another_library(prefix: str, start: int) -> None:
    """Every third name, from the first, the second and the third."""
    library = {"np.": "np", "torch.": "torch", "jnp.": "jnp", "": ""}[prefix]
    names = {row.name for row in table() if row.name.isidentifier() and (not library or library in row.libraries)}
    for name in sorted(names - set(keyword.kwlist))[start::3]:
        if not prefix and name in {*function_names(), *CONSTANTS, "print"}:  # the parser has an answer to print
            continue
        error = refusal(f"{prefix}{name}(x)")
        assert error.code == "MT0101" and "did you mean" not in error.help, (name, error.help)
        assert re.search("write|there without|is not here", error.help), (name, error.help)


@pytest.mark.parametrize(
    "text, help",
    [
        ("average(x)", "write `mean(x)` for `average(x)` of numpy"),
        ("average(x, axis=0)", "write `mean(x, axis=0)` for `average(x, axis)` of numpy"),
        ("np.average(x, 0)", "write `mean(x, axis=0)` for `average(x, axis)` of numpy"),
        ("np.sort(x)", "`sort` is there without a prefix"),
        ("torch.sort(x)", "write `(sort(x, axis=-1, descending=False), argsort("),
        ("torch.std(x)", "write `std(x, correction=1)` for `std(x, *rest)` of torch"),
        ("np.std(x)", "`std` is there without a prefix"),
        ("torch.split(x, 2)", "write `split(x, x.shape[0] // 2, axis=0)`"),
        ("torch.nn.functional.softmax(x, dim=1)", "`softmax` is there without a prefix"),
        ("F.pad(x, (1, 1))", "`pad` of torch.nn.functional is not here: its pairs begin at the last axis"),
        ("np.linalg.norm(x - x)", "write `vector_norm(x - x)` for `norm(x)`"),
        ("np.linalg.svd(x)", "`svd` of numpy.linalg and torch.linalg is not here"),
        ("np.random.randn(3)", "`randn` of random is not here: a program draws no random numbers"),
        ("torch.fft.fft(x)", "`fft` of fft is not here: there are no Fourier transforms"),
        ("torch.nn.Linear(3, 4)", "`Linear` of torch.nn is not here: layers hold weights"),
        ("jax.nn.hard_tanh(x)", "write `clip(x, -1, 1)` for `hard_tanh(x)` of jax.nn"),
        ("x.cov()", "of torch"),
        ("cov(x)", "of numpy"),
        ("x.add_(1)", "write `add(x, 1)` for `add_` of torch tensors"),
        ("x.numel()", "write `x.size` for `numel(x)`"),
        ("x.real", "write `x` for `.real` of numpy arrays"),
        ("x.device", "`.device` of numpy arrays is not here"),
        ("x[np.newaxis]", "write `None` for `newaxis` of numpy"),
        ("x * np.pi", "`pi` is there without a prefix"),
        ("x.astype(np.float16)", "write `f16` for `float16` of numpy"),
        ("astype(x, float32)", "write `f32` for `float32` of numpy"),
        ("float32(x)", "write `astype(x, f32)` for `float32` of numpy"),
        ("float(x)", "write `astype(x, f32)` for `float(x)` of Python"),
        ("f16(x)", "write `astype(x, f16)`"),
        ("np + x", "functions need no prefix"),
        ("np.sotr(x)", "did you mean `sort`?"),
        ("sqtr(x)", "did you mean `sqrt`?"),
        ("unique(x)", "is not here: the shape of its result depends on the data"),
    ],
)
def test_messages_name_the_replacement(text: str, help: str) -> None:
    assert help in refusal(text).help


def test_similar_names_of_the_program_are_also_suggested() -> None:
    assert refusal("input + x", inputs="f32[N]", x="f32[N]").help.startswith("did you mean `inputs`? `input` of Python")
    text = "def averaged(x):\n    return mean(x)\n\n\ndef f(x: f32[N]):\n    return average(x)\n"
    with pytest.raises(CompileError) as caught:
        mt.compile(text)
    assert caught.value.help.startswith("did you mean `averaged`? write `mean(x)`")


def test_a_parameter_may_have_the_name_of_a_library() -> None:
    assert mt.evaluate("F * 2 + np.sum()", F=np.ones(2), np=np.ones(2)).tolist() == [4, 4]


@pytest.mark.parametrize(
    "text", ["np.a.b.c.d(x)", "np.x", "f(np)", "np(x)", "x[np]", "torch.nn", "np.np.np", "-np.exp", "(np).sort(x)"]
)
def test_odd_uses_of_prefixes_are_errors(text: str) -> None:
    assert refusal(text).code == "MT0101"
