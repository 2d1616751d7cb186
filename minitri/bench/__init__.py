"""`minitri bench`: programs against what a user would pick instead, on this machine's GPU.

run.py                measures the cases and prints the tables
clock.py              how long calls take, in turns
comparison.py         one case: its peers made ready, errors, memory; the small table without a GPU
host.py               what a call costs besides its kernels
report.py  plot.py    the tables, and a picture
case.py  cases.py     what a case is; all of them, and the same as a user of torch would write them
programs.mt           the programs of ours
"""
