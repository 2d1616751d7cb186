"""Names of other libraries, and what to write for them: numpy, torch, jax, the array API, Python."""
