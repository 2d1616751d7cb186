def cross_entropy(logits, target):
    picked = take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    return mean(logsumexp(logits, axis=-1) - picked)


def attention(q, k, v, scale=None):
    return softmax(q @ k.mT * (q.shape[-1] ** -0.5 if scale == None else scale), axis=-1) @ v
