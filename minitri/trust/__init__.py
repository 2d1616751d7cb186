"""Why an answer can be trusted: error bounds, proofs, the sanitizer, `check`."""
