"""`minitri bench`: programs against what a user would pick instead, on this machine's GPU.

run.py        measures the cases and prints the tables
cases.py      what a case is, and the table of all
memory.py     programs that move bytes, and the same as a user of torch would write them
products.py   programs around a matrix product
"""
