"""The partition of the graph into kernels, and each kernel in index notation on named axes."""
