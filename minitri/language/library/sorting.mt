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


def median(x, axis=None, keepdims=False):
    rows = sort(flatten(x) if axis == None else moveaxis(x, axis, -1))
    n, last = rows.shape[-1], rows[..., -1]
    low, high = rows[..., (n - 1) // 2], rows[..., n // 2]
    middle = where(low == high, low, low / 2 + high / 2)  # low + high could overflow
    result = where(isnan(last), nan, middle)
    return reshape(result, sum(x, axis=axis, keepdims=keepdims).shape)


def quantile(x, q, axis=None, keepdims=False):
    rows = 1.0 * sort(flatten(x) if axis == None else moveaxis(x, axis, -1))
    last, place = rows.shape[-1] - 1, astype(q, f64) * (rows.shape[-1] - 1)
    below = astype(place, i64)
    low, high = rows[..., below], rows[..., minimum(below + 1, last)]
    part = astype(place - below, result_type(rows))
    between = where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    between = where((low == high) | (part == 0), low, between)
    known = (place >= 0) & (place <= last) & ~isnan(rows[..., -1])
    return reshape(where(known, between, nan), sum(x, axis=axis, keepdims=keepdims).shape)
