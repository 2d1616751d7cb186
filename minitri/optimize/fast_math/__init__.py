"""Fast math: faster, less exact arithmetic for results of 16 bits."""
