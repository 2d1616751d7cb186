"""`minitri fuzz`: compiles random programs and checks every pass and stage, until the time is up.

trial.py     checks one program: compares every pass with the reference, and the program with changed programs; writes
             a failure as one file
session.py   runs a session of random programs in worker processes: its seeds, counts, failures, crashes and hangs
"""
