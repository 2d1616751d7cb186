def zeros(shape, dtype=None):
    return full(shape, 0, f32 if dtype == None else dtype)


def ones(shape, dtype=None):
    return full(shape, 1, f32 if dtype == None else dtype)


def full_like(x, fill_value, dtype=None):
    return full(x.shape, fill_value, x.dtype if dtype == None else dtype)


def zeros_like(x, dtype=None):
    return full_like(x, 0, dtype)


def ones_like(x, dtype=None):
    return full_like(x, 1, dtype)
