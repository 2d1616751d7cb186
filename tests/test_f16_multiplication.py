"""The rewrite of multiplications into f16: which ones are done in f16, and that each rounds as in f32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from strategies import by_types

import minitri as mt

W = {"x": "f16[M, K]", "w": "i8[K, N]", "s": "f16[N]"}
SIZES = {"M": 16, "K": 128, "N": 256}
CASES: dict[str, tuple[str, dict[str, str], bool]] = {  # whether only sums are computed in f32
    "bytes and a scale": ("x @ (w.astype(f16) * s)", W, True),
    "unsigned bytes": ("x @ (w.astype(f16) * s)", W | {"w": "u8[K, N]"}, True),
    "halves": ("x @ (w * s)", W | {"w": "f16[K, N]"}, True),
    "a product in f32, rounded": ("x @ (w.astype(f32) * s.astype(f32)).astype(f16)", W, True),
    "a scale of rows": ("x @ (w.astype(f16) * s[:, None])", W | {"s": "f16[K]"}, True),
    "weights as the first factor": ("(w.astype(f16) * s) @ x", W | {"w": "i8[M, K]", "s": "f16[K]", "x": "f16[K, N]"}, True),
    "a scale in f32": ("x @ (w.astype(f32) * s).astype(f16)", W | {"s": "f32[N]"}, False),
    "integers of 16 bits": ("x @ (w.astype(f16) * s)", W | {"w": "i16[K, N]"}, False),
    "a sum": ("x @ (w.astype(f16) + s)", W, False),
    "a product that is added to": ("x @ (w.astype(f16) * s + s)", W, False),
    "a square": ("x @ (w.astype(f16) * w.astype(f16))", {"x": "f16[M, K]", "w": "i8[K, N]"}, True),
    "a factor with another use": ("x @ (w.astype(f16) * s + exp(s))", W, False),
    "bf16": ("x @ (w.astype(bf16) * s)", {"x": "bf16[M, K]", "w": "i8[K, N]", "s": "bf16[N]"}, False),
    "no matrix product": ("w.astype(f16) * s", {"w": "i8[K, N]", "s": "f16[N]"}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_products_of_bytes_and_halves_are_computed_in_f16(name: str) -> None:
    text, types, wanted = CASES[name]
    known = {n: SIZES[n] for n in SIZES if any(n in t[t.index("[") :] for t in types.values())}
    source = mt.compile(text, **types).lower(target="cuda:90", **known)["triton"]
    head = source[: source.index("rt.dot") if "rt.dot" in source else None]
    assert ("rt.to_f32" not in head and ".to(tl.float32)" not in head) == wanted, source


@pytest.mark.parametrize("name", list(CASES))
def test_every_stage(name: str) -> None:
    text, types, _ = CASES[name]
    report = mt.compile(text, **types).check(*by_types(types, SIZES))
    assert report.ok, report


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[
    pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")])])  # fmt: skip
@pytest.mark.parametrize("rows", [16, 128])
def test_each_product_is_rounded_as_in_f32(rows: int, device: str) -> None:
    """All bytes times halves of all sizes, denormals too. The matrix product with the identity does not change them."""
    bits = np.arange(0, 1 << 16, 37, dtype=np.uint16)[:1024]
    s = np.concatenate([bits.view(np.float16), (bits % 1024).view(np.float16)])
    s = torch.tensor(np.where(np.abs(s) < 500, s, 1), device=device)  # an overflow would give nan: inf * 0
    w = torch.arange(-128, 128, device=device).to(torch.int8)[:, None].expand(256, 2048).contiguous()
    identity = torch.eye(256, device=device, dtype=torch.float16)
    f = mt.compile("x @ (w.astype(f16) * s)", x="f16[M, K]", w="i8[K, N]", s="f16[N]")
    for first in range(0, 256, rows):
        made = f(identity[first : first + rows], w, s)
        assert torch.equal(made, (w[first : first + rows].half() * s) + 0.0)
