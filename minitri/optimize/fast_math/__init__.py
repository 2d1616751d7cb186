"""Fast math: faster but less exact arithmetic for kernels whose results are f16 or bf16."""
