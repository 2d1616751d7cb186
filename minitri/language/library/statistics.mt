def std(x, axis=None, correction=0.0, keepdims=False):
    return sqrt(var(x, axis, correction, keepdims))
