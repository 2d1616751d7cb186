"""The cases of `minitri bench --ablate`: cases of the benchmark, and some that only the ablation measures.

In: parts of names. Out: the `Case`s whose names contain one of them. Together the cases have at least one for each
optimisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from minitri.bench.case import Case, Input, program, torch
from minitri.bench.cases import attention_case, cases

INTERPRETED = "interpreted"  # the kind of a case that Triton's interpreter runs on the CPU

# Parts of names of benchmark cases. Together they have a case for every optimisation.
NAMES = (
    "add f32", "gelu bf16 16384", "softmax f32 16384", "softmax f32 512x131072", "softmax bf16 172738", "column sum f32",
    "total sum f32", "transpose f32", "cumsum f32 16384", "cross-entropy bf16", "residual gelu", "chain of 12",
    "mean and var", "attention full bf16 4x16x4096x64", "attention causal", "attention window", "decode", "relu(x@w+b) bf16 4096",
    "product bf16 16x8192", "layer bf16 1000x2050", "product w.T", "mlp", "dequantised f16 16x", "dequantised f16 256x", "layer bf16 4100x4090",
)  # fmt: skip


def cases_of(names: Sequence[str]) -> list[Case]:
    """The cases whose names contain one of `names`. Without names: the cases of `NAMES`, and `extra_cases`."""
    known = [*cases(), *extra_cases()]
    wanted = names or [*NAMES, *(c.name for c in extra_cases())]
    return [c for c in known if any(name in c.name for name in wanted)]


def extra_cases() -> tuple[Case, ...]:
    """Cases that only the ablation measures."""
    f32, bf16, nn = partial(Input, "f32"), partial(Input, "bf16"), torch.nn.functional
    pair = (bf16((134217426,)), bf16((134217426,)))
    small = Input("i8", (268435453,), below=50, signed=True)
    heads = bf16((4, 16, 4096, 64))
    normal, weights = bf16((4096, 65536)), bf16((65536,))
    return (
        attention_case("full", 4, 16, 4100, 64),
        attention_case("causal", 4, 16, 4100, 128),
        Case("attention alibi bf16 4x16x4096x64", program("attention_alibi"), (heads, heads, heads), _alibi, flops=4 * 4 * 16 * 4096**2 * 64),
        Case("add i8 268435453", program("add", "i8").replace("M, N", "N"), (small, small), lambda x, y: x + y),
        Case("scan f32 67108864", program("long_scan"), (f32((1 << 26,)),), lambda x: torch.cumsum(x, 0)),
        Case("total sum f32 86369x777", program("ragged_total"), (f32((86369, 777)),), lambda x: x.sum()),
        Case("band sum f32 8192x8192", program("band_sum"), (f32((8192, 8192)),), _band_sum),
        Case("add bf16 134217426", program("add", "bf16").replace("M, N", "N"), pair, lambda x, y: x + y),
        Case("cubic gelu bf16 16384x8192", program("cubic_gelu", "bf16"), (bf16((16384, 8192)),), partial(nn.gelu, approximate="tanh")),
        Case("cubic gelu f32 16384x4096", program("cubic_gelu"), (f32((16384, 4096)),), partial(nn.gelu, approximate="tanh")),
        Case("row sum plus f32 132x262144", program("row_sum_plus"), (f32((132, 262144)), f32((132,))), lambda x, b: x.sum(1) + b),
        Case("row sum plus f32 16384x4096", program("row_sum_plus"), (f32((16384, 4096)), f32((16384,))), lambda x, b: x.sum(1) + b),
        Case("weighted row sum f32 4096x14096", program("weighted_row_sum"), (f32((4096, 14096)), f32((14096,))), lambda x, g: (x * g).sum(1)),
        Case("every third f32 16384x4096", program("every_third"), (f32((16384, 4096)),), _every_third),
        Case("pattern bf16 16384x8192", program("pattern", "bf16"), (bf16((16384, 8192)),), _pattern),
        Case("differences f32 67108864", program("differences"), (f32((1 << 26,)),), torch.diff),
        Case("column softmax f32 4100x4090", program("softmax_of_columns"), (f32((4100, 4090)),), lambda x: x.softmax(0)),
        Case("joined columns f32 16384x4000", program("joined_columns"), (f32((16384, 1000)), f32((16384, 3000))), lambda x, y: torch.cat([x, y], 1)),
        Case("layernorm bf16 4096x65536", program("layer_norm", "bf16"), (normal, weights, weights), lambda x, g, b: nn.layer_norm(x, (x.shape[-1],), g, b, 1e-5)),
        Case("product bf16 8192x512x8192", program("matmul_of_f32", "bf16"), (bf16((8192, 512)), bf16((512, 8192))), torch.matmul, flops=2 * 8192 * 512 * 8192),
        Case("column sum f32 1024x1024 interpreted", program("column_sum"), (f32((1024, 1024)),), lambda x: x.sum(0), kind=INTERPRETED),
    )  # fmt: skip


def _alibi(q: Any, k: Any, v: Any) -> Any:
    here = torch.arange(q.shape[-2], device=q.device)
    scores = q @ k.mT * q.shape[-1] ** -0.5 - (here[:, None] - here).abs() * 0.0625
    return scores.softmax(-1) @ v


def _every_third(x: Any) -> Any:
    return torch.where(torch.arange(x.shape[1], device=x.device) % 3 == 0, x, 0)


def _pattern(x: Any) -> Any:
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape)
    return torch.where((rows[:, None] * 31 + columns * 17) % 1000 < 900, x, 0)


def _band_sum(x: Any) -> Any:
    m, n = x.shape
    rows, columns = torch.arange(m, device=x.device)[:, None], torch.arange(n, device=x.device)
    return torch.where(rows <= columns + 64, x, 0).sum(0)
