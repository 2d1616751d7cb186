"""Reads the printed text of a compilation stage back into the intermediate representation (IR) of that stage."""
