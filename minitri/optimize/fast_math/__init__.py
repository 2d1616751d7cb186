"""Fast math for results of 16 bits."""
