# Rows of a table, picked by number, and scaled. `*B` is any number of leading axes.
def embedding(w: f32[V, D], idx: i64[*B]) -> f32[*B, D]:
    return w[idx] * 1.414
