# A product and what follows it: the product itself is never stored.
def relu_matmul(x: f16[M, K], W: f16[K, N]) -> f16[M, N]:
    return relu(x @ W)
