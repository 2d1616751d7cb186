"""Defines the magic `%%minitri`: a notebook cell whose first line is `%%minitri` is a program of minitri.

    %load_ext minitri

    %%minitri
    def rows(x: f32[M, N]) -> f32[M, N]:
        return softmax(x, axis=-1)

The text of a `%%minitri` cell is a module or an expression, as for `mt.compile`. The program in the cell becomes a
variable of the notebook, and the output of the cell is a card (a small piece of HTML) about the program. The first line
of the cell can name the variable: `%%minitri rows` makes a variable `rows`. If the first line gives no name, the
variable has the name of the program's last function.

After `%load_ext minitri`, IPython prints a syntax error in a program of minitri as an error message without a
traceback.
"""

from typing import Any

from minitri.api import compile
from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.tracebacks import show_in_ipython
from minitri.language.parser import is_name
from minitri.program import Program


def load(shell: Any) -> None:
    """Adds the magic `%%minitri` to an IPython shell."""
    shell.register_magic_function(cell, "cell", "minitri")
    shell.set_custom_exc((ParseError,), show_in_ipython)  # IPython would show it as a mistake in the Python cell


def cell(line: str, text: str) -> Program:
    """Compiles the program in a cell, makes the program a variable of the notebook, and returns the program.

    Raises the same errors as `mt.compile`. Raises CompileError MT0003 if the text after `%%minitri` is not a valid
    name.
    """
    from IPython import get_ipython

    name = line.strip()
    if name and not is_name(name):
        message = f"`{name[:40]}` cannot name a program"
        raise CompileError("MT0003", message, help="write `%%minitri`, or `%%minitri name`")
    program = compile(text.strip("\n") + "\n", name="<cell>")
    shell: Any = get_ipython()
    shell.user_ns[name or program.name] = program
    return program
