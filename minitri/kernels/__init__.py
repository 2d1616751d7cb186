"""The graph partitioned into kernels: index notation on named axes, and which values are fused."""
