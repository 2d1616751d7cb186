"""From text, or from a Python function, to the syntax tree; and the reference that evaluates the tree."""
