"""Programs to begin with in the editor of a served page (serve.py): those of examples/, with sizes."""

from __future__ import annotations

from typing import Any

_TEXTS = {
    "vector_add": ("""\
def vector_add(a: f32[N], b: f32[N], c: f32[N]) -> f32[N]:
    return a * b + c
""", {"N": 7}),
    "softmax": ("""\
def softmax(x: f32[M, N]) -> f32[M, N]:
    e = exp(x - max(x, axis=-1, keepdims=True))
    return e / sum(e, axis=-1, keepdims=True)
""", {"M": 1000, "N": 300}),
    "linear": ("""\
def linear(x: f16[M, K], w: f16[K, N], b: f16[N]) -> f16[M, N]:
    return relu(x @ w + b)
""", {"M": 4096, "K": 512, "N": 1024}),
    "layer_norm": ("""\
def layer_norm(x: f32[*B, D], g: f32[D], b: f32[D], eps: float = 1e-5) -> f32[*B, D]:
    m = mean(x, axis=-1, keepdims=True)
    v = mean((x - m)**2, axis=-1, keepdims=True)
    return (x - m) * rsqrt(v + eps) * g + b
""", {}),
    "embedding": ("""\
def embedding(w: f32[V, D], idx: i64[*B]) -> f32[*B, D]:
    return w[idx]
""", {}),
    "cross_entropy": ("""\
def cross_entropy(z: f32[N, C], y: i64[N]) -> f32[]:
    return mean(logsumexp(z, axis=-1) - take_along_axis(z, y[:, None], axis=-1)[:, 0])
""", {}),
    "attention": ("""\
def attention(q: bf16[*B, T, D], k: bf16[*B, S, D], v: bf16[*B, S, D]) -> bf16[*B, T, D]:
    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v
""", {"T": 512, "S": 512, "D": 64}),
}  # fmt: skip

EXAMPLES: tuple[dict[str, Any], ...] = tuple({"name": n, "text": text, "sizes": sizes} for n, (text, sizes) in _TEXTS.items())
