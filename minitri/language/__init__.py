"""The parser makes a syntax tree from a text or from a Python function.

The reference evaluator evaluates the tree with numpy.
"""
