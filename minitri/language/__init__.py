"""The parser makes a syntax tree from the text of a program, or from a Python function.

The reference evaluator evaluates the syntax tree with numpy.
"""
