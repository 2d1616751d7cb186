"""`minitri bench`: compares programs with the libraries that a user would choose instead, on this machine's GPU.

run.py                  measures the cases and prints the tables
alternating_timer.py    times several implementations, and alternates between their calls
measure_case.py         measures one case: its implementations, errors and memory; prints the small table without a GPU
call_costs.py           measures what a call costs besides its kernels
result_tables.py        prints the tables of results
roofline_plot.py        draws the results as a picture
cases.py                all cases of the table, with the same computations in torch
programs.mt             the programs in the language
"""
