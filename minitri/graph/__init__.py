"""The typed tensor graph: how it is built from the syntax tree, rewritten, evaluated, verified and printed."""
