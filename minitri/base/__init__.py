"""What every part of the compiler stands on: sizes, types, the operator table, diagnostics, limits."""
