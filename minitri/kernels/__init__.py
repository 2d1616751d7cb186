"""The kernels that compute a graph of array operations. Each kernel uses index notation on named axes."""
