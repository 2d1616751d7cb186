"""The rooms: one optimisation a file or folder. The compiler works without them (`-O0`)."""
