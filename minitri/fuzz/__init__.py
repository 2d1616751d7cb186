"""`minitri fuzz`: compiles random programs and checks every pass and stage, until the time is up.

`trial.py`: checks one program. It compares every pass with the reference, and the program with changed programs. It
    writes a failure as one file.
`session.py`: runs a session of random programs in worker processes. The session counts programs, failures, crashes and
    hangs.
"""
