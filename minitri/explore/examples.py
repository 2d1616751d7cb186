"""Programs to begin with in the editor of a served page (serve.py): those of examples/, with sizes."""

from __future__ import annotations

from typing import Any

_TEXTS = {
    "vector_add": """\
# The sum of two vectors, element by element.
def vector_add(x: f32[N], y: f32[N]) -> f32[N]:
    return x + y
""",
    "softmax": """\
# Softmax of each row. The largest element is taken away first, so that exp cannot overflow.
def softmax(x: f32[M, N]) -> f32[M, N]:
    e = exp(x - max(x, axis=-1, keepdims=True))
    return e / sum(e, axis=-1, keepdims=True)
""",
    "gelu": """\
# GELU in its tanh form, written out by hand. `*S` is any shape.
def gelu(x: f32[*S]) -> f32[*S]:
    return 0.5*x*(1+tanh(0.79788456*(x+0.044715*x*x*x)))
""",
    "matmul": """\
# A matrix product. Sums are made in f32, whatever the operands are, and rounded once.
def matmul(x: f16[M, K], w: f16[K, N]) -> f16[M, N]:
    return x @ w
""",
    "relu_matmul": """\
# A product and what follows it: the product itself is never stored.
def relu_matmul(x: f16[M, K], W: f16[K, N]) -> f16[M, N]:
    return relu(x @ W)
""",
    "linear": """\
# A layer of a network: one kernel.
def linear(x: f16[M, K], w: f16[K, N], b: f16[N]) -> f16[M, N]:
    return relu(x @ w + b)
""",
    "layer_norm": """\
# Each row with its mean taken away and its variance made 1: a row is read once.
def layer_norm(x: f32[*B, D], g: f32[D], b: f32[D], eps: float = 1e-5) -> f32[*B, D]:
    m = mean(x, axis=-1, keepdims=True)
    v = mean((x - m)**2, axis=-1, keepdims=True)
    return (x - m) * rsqrt(v + eps) * g + b
""",
    "embedding": """\
# Rows of a table, picked by number, and scaled. `*B` is any number of leading axes.
def embedding(w: f32[V, D], idx: i64[*B]) -> f32[*B, D]:
    return w[idx] * 1.414
""",
    "cross_entropy": """\
# The mean over rows of logsumexp(z) minus the entry of the row's class.
def cross_entropy(z: f32[N, C], y: i64[N]) -> f32[]:
    return mean(logsumexp(z, axis=-1) - take_along_axis(z, y[:, None], axis=-1)[:, 0])
""",
    "attention": """\
# Scaled dot-product attention. Dimensions are numbers in the body: D**-0.5.
def attention(q: bf16[*B, T, D], k: bf16[*B, S, D], v: bf16[*B, S, D]) -> bf16[*B, T, D]:
    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v
""",
}
_SIZES: dict[str, dict[str, int]] = {
    "vector_add": {"N": 7},
    "softmax": {"M": 1000, "N": 300},
    **dict.fromkeys(("matmul", "relu_matmul", "linear"), {"M": 4096, "K": 512, "N": 1024}),
    "attention": {"T": 512, "S": 512, "D": 64},
}

EXAMPLES: tuple[dict[str, Any], ...] = tuple(
    {"name": name, "text": text, "sizes": _SIZES.get(name, {})} for name, text in _TEXTS.items()
)
