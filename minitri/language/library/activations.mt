def relu(x):
    return maximum(x, 0)


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    # log(1 + exp(x)) without overflow: the larger of x and 0 leaves the exponential
    x = 1.0 * x  # integers become f32: -abs(x) of unsigned ones would wrap
    return maximum(x, 0) + log1p(exp(-abs(x)))


def gelu_erf(x):
    return 0.5 * x * (1 + erf(x * 0.7071067811865476))


def gelu_tanh(x):
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gelu(x, approximate="none"):
    return gelu_tanh(x) if approximate == "tanh" else gelu_erf(x)
