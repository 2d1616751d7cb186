def softmax(x, axis=-1):
    x = 1.0 * x  # integers become f32: their differences would wrap
    shifted = exp(x - max(x, axis=axis, keepdims=True))
    return shifted / sum(shifted, axis=axis, keepdims=True)


def logsumexp(x, axis=None, keepdims=False):
    x = 1.0 * x
    m = max(x, axis=axis, keepdims=True)
    total = log(sum(exp(x - m), axis=axis, keepdims=True)) + m
    total = where(isfinite(m), total, m)  # of a row of -inf that is -inf, and not nan
    return total if keepdims else squeeze(total, axis)


def log_softmax(x, axis=-1):
    x = 1.0 * x
    shifted = x - max(x, axis=axis, keepdims=True)
    return shifted - log(sum(exp(shifted), axis=axis, keepdims=True))


def layer_norm(x, weight=1, bias=0, eps=1e-5, axis=-1):
    centred = x - mean(x, axis=axis, keepdims=True)
    variance = mean(centred * centred, axis=axis, keepdims=True)
    return centred * rsqrt(variance + eps) * weight + bias


def rms_norm(x, weight=1, eps=1e-6, axis=-1):
    x = 1.0 * x
    return x * rsqrt(mean(x * x, axis=axis, keepdims=True) + eps) * weight
