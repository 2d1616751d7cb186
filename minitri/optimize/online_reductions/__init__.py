"""Online reductions: a reduction runs in the same loop as another reduction that it depends on (online softmax,
Welford).
"""
