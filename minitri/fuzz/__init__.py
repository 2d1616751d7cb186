"""`minitri fuzz`: random programs at every pass and stage, until the time is up.

trial.py     one program: every pass against the reference, and against programs that must agree
worker.py    the process in which that happens
workers.py   processes, watched: a crash or a hang is a finding
session.py   seeds, figures, what failed
files.py     a failure as one file
"""

from minitri.fuzz.files import Case, read, written
from minitri.fuzz.session import Session, Summary, fuzz
from minitri.fuzz.trial import Outcome, examined, trial

__all__ = ["Case", "Outcome", "Session", "Summary", "examined", "fuzz", "read", "trial", "written"]
