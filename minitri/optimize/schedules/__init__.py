"""Schedules of reductions, products and attention."""
