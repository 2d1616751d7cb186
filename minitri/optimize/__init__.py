"""The rooms: one optimisation a file or folder. The compiler is complete without them (`-O0`)."""
