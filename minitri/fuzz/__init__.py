"""`minitri fuzz`: compiles random programs and checks every pass and stage, until the time is up.

`trial.py`: checks one program. The module compares every pass with the reference. The module also compares the program
    with changed programs, which must give the same results. For each failing program, the module makes the text of a
    file from which the failure can be repeated.
`session.py`: runs a session of random programs in worker processes. The session counts programs, failures, crashes and
    hangs.
"""
