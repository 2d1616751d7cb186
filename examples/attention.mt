# Scaled dot-product attention. Dimensions are numbers in the body: D**-0.5.
def attention(q: bf16[*B, T, D], k: bf16[*B, S, D], v: bf16[*B, S, D]) -> bf16[*B, T, D]:
    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v
