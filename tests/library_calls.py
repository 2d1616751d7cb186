"""A call of each function of the library, with the types of its arguments."""

from __future__ import annotations

LIBRARY = {
    "relu": ("relu(x)", {"x": "f32[M, N]"}),
    "silu": ("silu(x)", {"x": "f16[M, N]"}),
    "softplus": ("softplus(x)", {"x": "f32[*B]"}),
    "gelu": ("gelu(x) + gelu(x, approximate='tanh')", {"x": "f32[M, N]"}),
    "softmax": ("softmax(x, axis=0)", {"x": "f32[M, N]"}),
    "logsumexp": ("logsumexp(x, axis=1), logsumexp(x)", {"x": "f32[M, N]"}),
    "log_softmax": ("log_softmax(x)", {"x": "f32[M, N]"}),
    "layer_norm": ("layer_norm(x, g, b)", {"x": "f32[M, N]", "g": "f32[N]", "b": "f32[N]"}),
    "rms_norm": ("rms_norm(x, g)", {"x": "f16[M, N]", "g": "f16[N]"}),
    "cross_entropy": ("cross_entropy(z, y)", {"z": "f32[M, N]", "y": "i64[M]"}),
    "attention": ("attention(q, k, v)", {"q": "f32[B, T, D]", "k": "f32[B, S, D]", "v": "f32[B, S, D]"}),
}
