"""The parser makes a syntax tree of a text or a Python function. The reference evaluates the tree with numpy."""
