"""Basics that every part of the compiler uses: symbolic sizes, dtypes, the operator table, diagnostics, limits."""
