"""Functions with bare annotations, as they are written under `from __future__ import annotations`."""

from __future__ import annotations

import minitri as mt


@mt.jit
def scaled(x: f32[M, N], w: f32[N], by: float = 2.0) -> f32[M, N]:
    return x * w * by


@mt.jit()
def normalised(x: f32[*B, D], eps: float = 1e-5, power: int = 2):
    return x * rsqrt(mean(x**power, axis=-1, keepdims=True) + eps)


class Holder:
    @staticmethod
    @mt.jit
    def inner(x: f32[N]):
        # a comment, and a "string: f32[N]" in it
        return x + 1
