"""How a pass runs: its contract, its context, and the manager that runs, verifies and times all passes.

The table of the passes themselves is `PASSES` in minitri/pipeline.py.
"""
