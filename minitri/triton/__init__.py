"""Tile programs as Triton source, what that source needs to run, and what Triton's compiler makes of it."""
