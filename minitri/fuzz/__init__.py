"""`minitri fuzz`: compiles random programs and checks every pass and stage, until the time is up.

`trial.py`: checks one program. The results of every pass are compared with the reference. The program is also compared
    with changed programs that must give the same results. It writes a failure as one file.
`session.py`: runs a session of random programs in worker processes. It counts programs, failures, crashes and hangs.
"""
