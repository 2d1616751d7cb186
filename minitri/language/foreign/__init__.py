"""Translates names of other libraries (numpy, torch, jax, the array API, Python) into names of the language."""
