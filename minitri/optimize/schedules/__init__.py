"""Schedule rules for elementwise kernels, reductions, products and attention."""
