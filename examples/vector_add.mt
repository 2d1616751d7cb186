# The sum of two vectors, element by element.
def vector_add(x: f32[N], y: f32[N]) -> f32[N]:
    return x + y
