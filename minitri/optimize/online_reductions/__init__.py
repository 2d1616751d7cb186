"""Online reductions: a reduction that depends on another runs in the same loop (online softmax, Welford)."""
