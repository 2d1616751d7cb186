"""Programs to begin with, and links that hold a program.

In: nothing, or a program as text. Out: `EXAMPLES`, each a request as the editor sends it; and the part
of an address after `#` in which a whole request stands, so that a link needs no server that keeps it:

    #program=<deflated JSON {text, types, sizes, target} in base64, as of a URL>

Left out: what is made of a request (answer.py).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

Request = dict[str, Any]

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
    "any expression": ("gelu(x @ w.mT) + x", {}),
}  # fmt: skip
_TYPES = {"any expression": {"x": "f32[M, K]", "w": "f32[K, K]"}}

EXAMPLES: tuple[Request, ...] = tuple(
    {"name": name, "text": text, "types": _TYPES.get(name, {}), "sizes": sizes, "target": "cuda:90"}
    for name, (text, sizes) in _TEXTS.items()
)


def fragment(request: Mapping[str, Any]) -> str:
    """The part of a link after `#`."""
    kept = {k: request[k] for k in ("text", "types", "sizes", "target") if request.get(k)}
    deflated = zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), 9, wbits=-15)
    return f"program={base64.urlsafe_b64encode(deflated).decode().rstrip('=')}"


def request_of(fragment: str) -> Request:
    """The request in such a part; ValueError if there is none."""
    text = fragment.removeprefix("program=")
    deflated = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    inflater = zlib.decompressobj(wbits=-15)
    return json.loads(inflater.decompress(deflated, 1 << 20))
