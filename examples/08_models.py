"""Pieces of a language model, each a few lines of the language, each checked against numpy.

    python examples/08_models.py [--stages]

linear.mt, layer_norm.mt, attention.mt, cross_entropy.mt: how many kernels each becomes, and
what it must read and write.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from common import agree, flags, normal, program, random, stages

from minitri.base.text_tables import byte_size
from minitri.kernels.memory_traffic import traffic

bf16 = ml_dtypes.bfloat16


def linear(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * g + b


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5) @ v


def cross_entropy(z: Any, y: Any) -> Any:
    return np.mean(np.log(np.exp(z).sum(axis=-1)) - z[np.arange(len(z)), y.astype(int)])


def cases() -> list[tuple[Any, tuple[Any, ...], float]]:
    """(numpy's version, arguments, what rounding may do)."""
    half = lambda *shape: normal(*shape, dtype=np.float16)  # noqa: E731
    brain = lambda *shape: normal(*shape, dtype=bf16)  # noqa: E731
    return [
        (linear, (half(7, 33), half(33, 5), half(5)), 1e-3),
        (linear, (half(129, 70), half(70, 65), half(65)), 1e-3),
        (layer_norm, (normal(2, 3, 33), normal(33), normal(33)), 2e-6),
        (layer_norm, (normal(1000), normal(1000), normal(1000)), 2e-6),
        (attention, (brain(2, 3, 7, 5), brain(2, 3, 9, 5), brain(2, 3, 9, 5)), 1e-2),
        (attention, (brain(33, 16), brain(130, 16), brain(130, 16)), 1e-2),
        (cross_entropy, (normal(7, 33), random.integers(0, 33, 7)), 2e-6),
        (cross_entropy, (normal(100, 1), random.integers(0, 1, 100)), 2e-6),
    ]


def main() -> None:
    args = flags(__doc__)
    for reference, arrays, within in cases():
        f = program(f"{reference.__name__}.mt")
        low = f.lower(*arrays)
        moved = traffic(low.compilation.value("kernels"), low.sizes)
        print(f"{f.name}: kernels {', '.join(f'{t.kernel} ({byte_size(t.total)})' for t in moved)}")
        expected = reference(*[a.astype(np.float64) for a in arrays])
        agree(" ".join(str(a.shape) for a in arrays), f(*arrays), expected, within)
        if args.stages:
            stages(f, *arrays)


if __name__ == "__main__":
    main()
