"""`minitri bench`: compares programs with the libraries that a user would choose instead, on this machine's GPU.

run.py                measures the cases and prints the tables
clock.py              times the calls of several implementations, which alternate
measure_case.py       one case: its implementations, errors and memory; the small table without a GPU
call_overhead.py      what a call costs besides its kernels
result_tables.py      the tables
roofline_plot.py      the picture
case.py  cases.py     what a case is; the table of all cases, with the same computations in torch
programs.mt           the programs in the language
"""
