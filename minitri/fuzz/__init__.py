"""`minitri fuzz`: compiles random programs and checks every pass and stage, until the time is up.

trial.py     checks one program: compares every pass with the reference, and the program with changed programs
worker.py    the process that runs trials
session.py   runs a session of random programs in worker processes: its seeds, counts, failures, crashes and hangs
failure_file.py   writes and reads a failure as one file
"""
