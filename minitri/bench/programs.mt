# The programs that are measured. Those of f32 alone are measured with other dtypes too: `program` in cases.py.


# ---- memory ----

def add(x: f32[M, N], y: f32[M, N]) -> f32[M, N]:
    return x + y


def gelu_tanh(x: f32[M, N]) -> f32[M, N]:
    return 0.5*x*(1+tanh(0.79788456*(x+0.044715*x*x*x)))


def softmax_of_rows(x: f32[M, N]) -> f32[M, N]:
    e = exp(x - max(x, axis=-1, keepdims=True))
    return e / sum(e, axis=-1, keepdims=True)


def softmax_of_columns(x: f32[M, N]) -> f32[M, N]:
    return softmax(x, axis=0)


def log_softmax_of_rows(x: f32[M, N]) -> f32[M, N]:
    return log_softmax(x, axis=-1)


def layer_norm(x: f32[*B, N], g: f32[N], b: f32[N], eps: float = 1e-5) -> f32[*B, N]:
    m = mean(x, axis=-1, keepdims=True)
    v = mean((x - m)**2, axis=-1, keepdims=True)
    return (x - m) * rsqrt(v + eps) * g + b


def rms_norm(x: f32[M, N], g: f32[N], eps: float = 1e-6) -> f32[M, N]:
    return x * rsqrt(mean(x * x, axis=-1, keepdims=True) + eps) * g


def row_sum(x: f32[M, N]) -> f32[M]:
    return sum(x, axis=1)


def column_sum(x: f32[M, N]) -> f32[N]:
    return sum(x, axis=0)


def total_sum(x: f32[M, N]) -> f32[]:
    return sum(x)


def transposed_row_sum(x: f32[M, N]) -> f32[N // 2]:
    return sum(reshape(x.mT, (N // 2, 2 * M)), axis=1)


def transposed_softmax(x: f32[M, N]) -> f32[N, M]:
    return 2 * softmax(x, axis=1).mT


def transposed(x: f32[M, N]) -> f32[N, M]:
    return x.T


def transpose_and_add(x: f32[M, N], y: f32[N, M]) -> f32[N, M]:
    return x.T + y


def running_sum(x: f32[M, N]) -> f32[M, N]:
    return cumulative_sum(x, axis=1)


def masked_running_sum(x: f32[M, N], m: bool[M, N]) -> f32[M, N]:
    return cumulative_sum(where(m, x, 0), axis=1)


def cross_entropy(z: f32[N, C], y: i64[N]) -> f32[]:
    return mean(logsumexp(z, axis=-1) - take_along_axis(z, y[:, None], axis=-1)[:, 0])


def embedding(w: f32[V, D], idx: i64[N]) -> f32[N, D]:
    return w[idx]


def argmax_of_rows(x: f32[M, N]) -> i64[M]:
    return argmax(x, axis=1)


def moments(x: f32[B, C, D]):
    return mean(x, axis=(0, 2)), var(x, axis=(0, 2))


def residual_bias_gelu(x: f32[B, T, D], r: f32[B, T, D], b: f32[D], s: f32[T, 1], c: f32[B, 1, D]) -> f32[B, T, D]:
    return r + s * gelu(x + b + c, approximate="tanh")


def chain(x: f32[M, N], y: f32[M, N]):
    a = x * 1.5 + y
    b = abs(a) + 0.25 * x
    c = sqrt(b * b + 1)
    d = maximum(c - y, 0)
    return a * d + 2, d * 0.5 - c


# ---- attention ----

def attention_full(q: bf16[B, H, T, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D]) -> bf16[B, H, T, D]:
    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v


def attention_causal(q: bf16[B, H, T, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D]) -> bf16[B, H, T, D]:
    return softmax(where(arange(T)[:, None] - arange(S) >= 0, q @ k.mT * D**-0.5, -inf), axis=-1) @ v


def attention_window(q: bf16[B, H, T, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D]) -> bf16[B, H, T, D]:
    return softmax(where((arange(T)[:, None] - arange(S) >= 0) & (arange(T)[:, None] - arange(S) < 512), q @ k.mT * D**-0.5, -inf), axis=-1) @ v


def attention_alibi(q: bf16[B, H, T, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D]) -> bf16[B, H, T, D]:
    return astype(softmax(q @ k.mT * D**-0.5 - abs(arange(T)[:, None] - arange(S)) * 0.0625, axis=-1), bf16) @ v


def decode(q: bf16[B, H, G, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D]) -> bf16[B, H, G, D]:
    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v


# ---- products ----

def matmul_of_f32(x: f32[*B, M, K], w: f32[*B, K, N]) -> f32[*B, M, N]:
    return x @ w


def matmul_in_tf32(x: f32[M, K], w: f32[K, N]) -> f32[M, N]:
    return matmul(x, w, precision="tf32")


def linear(x: f32[*B, M, K], w: f32[*B, K, N], b: f32[N]) -> f32[*B, M, N]:
    return relu(x @ w + b)


def linear_in_tf32(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N]:
    return relu(matmul(x, w, precision="tf32") + b)


def matmul_of_columns(x: bf16[K, M], w: bf16[K, N]) -> bf16[M, N]:
    return x.T @ w


def linear_of_columns(x: bf16[K, M], w: bf16[K, N], b: bf16[N]) -> bf16[M, N]:
    return relu(x.T @ w + b)


def matmul_by_rows(x: bf16[M, K], w: bf16[N, K]) -> bf16[M, N]:
    return x @ w.T


def linear_by_rows(x: bf16[M, K], w: bf16[N, K], b: bf16[N]) -> bf16[M, N]:
    return relu(x @ w.T + b)


def mlp(x: bf16[M, K], w1: bf16[K, H], b1: bf16[H], w2: bf16[H, K], b2: bf16[K]) -> bf16[M, K]:
    return gelu(x @ w1 + b1) @ w2 + b2 + x


def dequantised(x: f16[M, K], w: i8[K, N], scale: f16[N]) -> f16[M, N]:
    return x @ (w.astype(f16) * scale)


# ---- ablation ----

def add_vectors(x: f32[N], y: f32[N]) -> f32[N]:
    return x + y


def long_scan(x: f32[N]) -> f32[N]:
    return cumulative_sum(x)


def band_sum(x: f32[M, N]) -> f32[N]:
    return sum(where(arange(M)[:, None] <= arange(N) + 64, x, 0), axis=0)


def cubic_gelu(x: f32[M, N]) -> f32[M, N]:
    return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x ** 3)))


def row_sum_plus(x: f32[M, N], b: f32[M]) -> f32[M]:
    return sum(x, axis=1) + b


def weighted_row_sum(x: f32[M, N], g: f32[N]) -> f32[M]:
    return sum(x * g, axis=1)


def every_third(x: f32[M, N]) -> f32[M, N]:
    return where(arange(N) % 3 == 0, x, 0)


def differences(x: f32[N]) -> f32[N - 1]:
    return x[1:] - x[:-1]


def joined_columns(x: f32[M, N], y: f32[M, K]) -> f32[M, N + K]:
    return concat([x, y], axis=1)


def two_norms(x: f32[M, N], y: f32[M, N]) -> f32[M, 2 * N]:
    return concat([layer_norm(x), rms_norm(y)], axis=1)


def pattern(x: f32[M, N]) -> f32[M, N]:
    return where((arange(M)[:, None] * 31 + arange(N) * 17) % 1000 < 900, x, 0)


def batch_in_another_order(x: bf16[A, B, M, K], w: bf16[K, N]) -> bf16[B, A, M, N]:
    return permute_dims(x @ w, (1, 0, 2, 3))


def normalised_product(x: bf16[M, K], w: bf16[K, N]) -> bf16[M, N]:
    y = x @ w
    return (y - mean(y, axis=-1, keepdims=True)) * rsqrt(var(y, axis=-1, keepdims=True) + 1e-5)
