"""Block skipping: loops skip blocks that provably change nothing (causal and windowed attention)."""
