def argsort(x, axis=-1, descending=False, stable=True):
    x = moveaxis(x, axis, -1)
    place = arange(x.shape[-1], dtype=i32)
    mine, other = x[..., :, None], x[..., None, :]
    tie = (mine == other) | isnan(mine) & isnan(other)
    first = (other > mine) | isnan(other) if descending else (other < mine) | isnan(mine)
    # the rank of an element is how many stand before it: all pairs are compared
    rank = sum(where(tie, place < place[:, None], first), axis=-1, dtype=i32)
    order = sum(where(rank[..., None, :] == place[:, None], place, 0), axis=-1, dtype=i32)
    return moveaxis(astype(order, i64), -1, axis)


def sort(x, axis=-1, descending=False, stable=True):
    return take_along_axis(x, argsort(x, axis, descending, stable), axis=axis)


def count_nonzero(x, axis=None, keepdims=False):
    return sum(astype(x, bool), axis=axis, keepdims=keepdims)


def isin(x1, x2, invert=False):
    found = any(x1[..., None] == flatten(x2), axis=-1)
    return ~found if invert else found
