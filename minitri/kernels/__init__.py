"""The kernels of a graph, each in index notation on named axes."""
