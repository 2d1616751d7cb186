"""Builds the typed tensor graph from the syntax tree, and rewrites, evaluates, verifies and prints graphs."""
