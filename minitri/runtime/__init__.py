"""A call: binding the caller's arrays to parameters, launching kernels, and measuring time."""
