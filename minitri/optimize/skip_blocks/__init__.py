"""Block skipping: loops leave out blocks that provably change nothing (causal and windowed attention)."""
