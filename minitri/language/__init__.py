"""The parser makes a syntax tree from a program, which is a text or a Python function.

The reference evaluator evaluates the syntax tree with numpy.
"""
