"""Writes tile programs as Triton source, and runs Triton's compiler on this source."""
