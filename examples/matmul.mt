# A matrix product. Sums are made in f32, whatever the operands are, and rounded once.
def matmul(x: f16[M, K], w: f16[K, N]) -> f16[M, N]:
    return x @ w
