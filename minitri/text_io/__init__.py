"""Reads the printed text of a stage back into the IR of that stage."""
