"""The kernels of a graph. Each kernel is written in index notation on named axes."""
