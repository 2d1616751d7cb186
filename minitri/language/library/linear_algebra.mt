def dot(x1, x2):
    axis = -2 if x2.ndim > 1 else -1
    return multiply(x1, x2) if x1.ndim * x2.ndim == 0 else tensordot(x1, x2, ((-1,), (axis,)))


def inner(x1, x2):
    return multiply(x1, x2) if x1.ndim * x2.ndim == 0 else tensordot(x1, x2, ((-1,), (-1,)))


def vecdot(x1, x2, axis=-1):
    return (moveaxis(x1, axis, -1)[..., None, :] @ moveaxis(x2, axis, -1)[..., None])[..., 0, 0]


def outer(x1, x2):
    return flatten(x1)[:, None] * flatten(x2)


def trace(x, offset=0, dtype=None):
    return sum(diagonal(x, offset), axis=-1, dtype=dtype)


def vector_norm(x, axis=None, keepdims=False, ord=2):
    size = abs(1.0 * x)
    return (
        max(size, axis=axis, keepdims=keepdims) if ord == inf
        else min(size, axis=axis, keepdims=keepdims) if ord == -inf
        else sum(where(size == 0, 0.0, 1.0), axis=axis, keepdims=keepdims, dtype=result_type(size)) if ord == 0
        else sum(size, axis=axis, keepdims=keepdims) if ord == 1
        else sqrt(sum(size * size, axis=axis, keepdims=keepdims)) if ord == 2
        else sum(size ** ord, axis=axis, keepdims=keepdims) ** (1 / ord)
    )
