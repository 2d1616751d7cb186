"""Fusion: which nodes of a graph run in one kernel."""
