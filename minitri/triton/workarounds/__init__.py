"""What Triton and NVIDIA's assembler get wrong, and how kernels avoid it."""
