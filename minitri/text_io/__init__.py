"""Reads the printed text of a stage back into its IR."""
