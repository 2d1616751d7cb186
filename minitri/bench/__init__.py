"""`minitri bench`: programs against what a user would pick instead, on this machine's GPU.

run.py                                measures the cases and prints the tables
clock.py                              how long calls take, in turns
comparison.py                         one case: its peers made ready, errors, memory
host.py                               what a call costs besides its kernels
interpreted.py                        the small table without a GPU
report.py  plot.py                    the tables, and a picture
case.py  cases.py                     what a case is; all of them
memory.py  attention.py  products.py  the cases, and the same as a user of torch would write them
programs.mt                           the programs of ours
"""
