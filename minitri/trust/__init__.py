"""Tools that show whether a compiled program is correct: error bounds, proofs, a sanitizer and `check`."""
