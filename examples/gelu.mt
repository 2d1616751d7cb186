# GELU in its tanh form, written out by hand. `*S` is any shape.
def gelu(x: f32[*S]) -> f32[*S]:
    return 0.5*x*(1+tanh(0.79788456*(x+0.044715*x*x*x)))
