"""Runs calls of compiled programs: binds arrays to parameters, launches kernels, and measures time."""
