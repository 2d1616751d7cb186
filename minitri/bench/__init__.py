"""`minitri bench`: compares minitri with other GPU libraries, such as torch, on this machine's GPU.

`run.py`: measures the cases and prints the tables.
`alternating_timer.py`: times several implementations, and alternates between their calls.
`measure_case.py`: measures the implementations, errors and memory of one case. Without a GPU, prints a small table.
`call_costs.py`: measures the costs of a call besides the time of its kernels.
`result_tables.py`: prints the tables of results.
`roofline_plot.py`: draws the results as a picture.
`cases.py`: defines all cases of the table, with the same computations in torch.
`programs.mt`: contains the programs of the cases, in the language.
"""
