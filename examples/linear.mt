# A layer of a network: one kernel.
def linear(x: f16[M, K], w: f16[K, N], b: f16[N]) -> f16[M, N]:
    return relu(x @ w + b)
