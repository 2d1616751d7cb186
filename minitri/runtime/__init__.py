"""Calls of compiled programs: binding arrays to parameters, launching kernels, and measuring time."""
