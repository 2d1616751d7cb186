"""Online reductions: a reduction runs in the loop of another one that it depends on (online softmax, Welford)."""
