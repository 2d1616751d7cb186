"""The typed tensor graph: built from the syntax tree, simplified, evaluated, checked, shown."""
