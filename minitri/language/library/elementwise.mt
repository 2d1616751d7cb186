def logaddexp(x1, x2):
    x1, x2 = 1.0 * x1, 1.0 * x2  # integers become f32: their differences would wrap
    apart = maximum(x1, x2) + log1p(exp(-abs(x1 - x2)))
    return where(x1 == x2, x1 + 0.6931471805599453, apart)  # equal infinities have no difference


def heaviside(x1, x2):
    x1 = 1.0 * x1
    return where(x1 == 0, x2, where(x1 < 0, 0, where(x1 > 0, 1, x1)))


def isclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    a, b = 1.0 * x1, 1.0 * x2
    close = (x1 == x2) | isfinite(b) & (abs(a - b) <= atol + rtol * abs(b))
    return close | isnan(a) & isnan(b) if equal_nan else close


def allclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    return all(isclose(x1, x2, rtol, atol, equal_nan))


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    limits = finfo(result_type(x, 1.0))
    largest = limits.max if posinf == None else posinf
    smallest = limits.min if neginf == None else neginf
    is_float = isdtype(result_type(x), kind="real floating")
    return where(isnan(x), nan, where(x == inf, largest, where(x == -inf, smallest, x))) if is_float else x


def linspace(start, stop, num, dtype=None, endpoint=True):
    to = f32 if dtype == None else dtype
    work = f32 if isdtype(to, (f16, bf16, f32)) else f64
    steps = maximum(num - 1 if endpoint else num, 1)
    x = full((num,), start, work) + arange(num, dtype=work) * ((stop - start) / steps)
    x = where((arange(num) == num - 1) & (num > 1), stop, x) if endpoint else x  # no rounding at the end
    return astype(floor(x) if isdtype(to, kind="integral") else x, to)


def next_half(x1, x2):
    to = result_type(x1, x2)
    a, b, limits = astype(x1, to), astype(x2, to), finfo(to)
    # any distance of 0.5 to 1.5 steps rounds to the next number, and 0.625 * eps * abs(a) is one
    size = maximum(abs(a) * (0.625 * limits.eps), 0.75 * limits.eps * limits.smallest_normal)
    moved = where(isinf(a), copysign(limits.max, a), a + where(b > a, size, -size))
    return astype(where((a == b) | isnan(b), b, moved), to)


def nextafter(x1, x2):
    return next_half(x1, x2) if isdtype(result_type(x1, x2), (f16, bf16)) else next_float(x1, x2)
