"""Fusion: the decision which nodes of a graph run in one kernel."""
