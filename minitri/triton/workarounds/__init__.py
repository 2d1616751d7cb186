"""Workarounds for errors in Triton and in ptxas, NVIDIA's assembler."""
