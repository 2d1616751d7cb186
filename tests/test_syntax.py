"""The front end: parsing of texts, modules and Python functions to trees, and every kind of syntax error."""

from __future__ import annotations

import ast as python
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from short_profile import examples

from minitri.base.diagnostics import CompileError, ParseError, render
from minitri.base.resource_limits import Limits
from minitri.language import ast, ast_dump
from minitri.language.ast_dump import format_module, format_type
from minitri.language.parser import parse_expression, parse_module, parse_type
from minitri.language.program_forms import from_function, parse_program

LIGHT = settings(max_examples=300, deadline=None)
# random while searching for bugs, fixed in CI
FUZZ = settings(max_examples=examples(500, 2000), deadline=None, derandomize=True)


def module(text: str) -> ast.Module:
    return parse_module(textwrap.dedent(text).strip("\n"))


def failure(parse: Any, *args: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        parse(*args)
    assert isinstance(caught.value, ParseError) or "limit" in caught.value.help
    return caught.value


# Trees


def test_program_golden() -> None:
    program = parse_program("relu(x @ w + b)", "<e>", {"x": "f16[M, K]", "w": "f16[K, N]", "b": "f16[N]"})
    golden = """
        def main(x: f16[M, K], w: f16[K, N], b: f16[N])  1:1
          return                                         1:1
            call relu                                    1:1
              binary +                                   1:6
                binary @                                 1:6
                  name x                                 1:6
                  name w                                 1:10
                name b                                   1:14
    """
    assert format_module(program).strip() == textwrap.dedent(golden).strip()


def test_module_golden() -> None:
    text = '''
    """A module may say what it is."""

    def norm(x: f32[*B, D], g: "f32[D]", eps: float = 1e-5) -> f32[*B, D]:
        """And so may a function."""
        m, _ = mean(x, axis=-1), 0x_ff  # a comment
        return (x - m) * rsqrt(
            x.T[:, None, ..., 1:2:-1] + eps,
        ) * g
    '''
    golden = """
        def norm(x: f32[*B, D], g: f32[D], eps: float = 1e-5) -> f32[*B, D]  3:5
          assign m, _                                                        5:5
            tuple                                                            5:12
              call mean                                                      5:12
                name x                                                       5:17
                axis=unary -                                                 5:25
                  number 1                                                   5:26
              number 255                                                     5:30
          return                                                             6:5
            binary *                                                         6:12
              binary *                                                       6:12
                binary -                                                     6:12
                  name x                                                     6:13
                  name m                                                     6:17
                call rsqrt                                                   6:22
                  binary +                                                   7:9
                    subscript                                                7:9
                      attribute T                                            7:9
                        name x                                               7:9
                      slice                                                  7:13
                      none                                                   7:16
                      ellipsis                                               7:22
                      slice                                                  7:27
                        start number 1                                       7:27
                        stop number 2                                        7:29
                        step unary -                                         7:31
                          number 1                                           7:32
                    name eps                                                 7:37
              name g                                                         8:9
    """
    assert format_module(module(text)).strip() == textwrap.dedent(golden).strip()


def test_other_nodes_golden() -> None:
    tree = parse_expression('gelu(~x, approximate="tanh") if k == None else (a, [True, 2.5], ())')
    golden = """
        conditional                   1:1
          call gelu                   1:1
            unary ~                   1:6
              name x                  1:7
            approximate=string 'tanh' 1:22
          if compare ==               1:33
            name k                    1:33
            none                      1:38
          else tuple                  1:48
            name a                    1:49
            list                      1:52
              number True             1:53
              number 2.5              1:59
            tuple                     1:65
    """
    assert [line.rstrip() for line in format_expr(tree).splitlines()] == [
        line for line in _realigned(golden).splitlines()
    ]


def format_expr(expr: ast.Expr) -> str:
    """A tree as the stage `ast` shows it."""
    return "".join(f"{text}\n" for text, _ in ast_dump._table([*ast_dump._tree(expr, 0)]))


def _realigned(golden: str) -> str:
    rows = [line.rsplit(maxsplit=1) for line in textwrap.dedent(golden).strip().splitlines()]
    width = max(len(text.rstrip()) for text, _ in rows)
    return "\n".join(f"{text.rstrip():<{width}}  {place}" for text, place in rows)


def test_a_method_is_a_call_with_its_receiver_first() -> None:
    method, function = parse_expression("x.sum(axis=1)"), parse_expression("sum(x, axis=1)")
    assert shape(method) == shape(function) == ("call", "sum", ["x"], {"axis": 1})


def test_spans_cover_the_source_text() -> None:
    tree = parse_expression("f(a)[1:] * (b + c)")
    assert isinstance(tree, ast.Binary)
    assert tree.span.text == "f(a)[1:] * (b + c)"
    assert tree.left.span.text == "f(a)[1:]"
    assert tree.right.span.text == "(b + c)"


@pytest.mark.parametrize("text", ["x[(i, j)]", "x[i, j]", "x[i, j,]"])
def test_a_tuple_in_a_subscript_is_several_indices(text: str) -> None:
    tree = parse_expression(text)
    assert isinstance(tree, ast.Subscript) and len(tree.indices) == 2


@pytest.mark.parametrize("text", ["x[(i, j),]", "x[()]"])
def test_a_tuple_in_a_subscript_may_be_one_index(text: str) -> None:
    tree = parse_expression(text)
    assert isinstance(tree, ast.Subscript) and isinstance(tree.indices[0], ast.Tuple)


@pytest.mark.parametrize("text", ["x[[i, j]]", "x[([i, j])]", "x[[i, j],]", "x[[i, [j]]]", "x[([i, j], k)]"])
def test_a_list_in_a_subscript_is_an_array(text: str) -> None:
    tree = parse_expression(text)
    assert isinstance(tree, ast.Subscript) and isinstance(tree.indices[0], ast.List)


# Types


@pytest.mark.parametrize(
    "text, shown",
    [
        ("f16[M, K]", "f16[M, K]"),
        ("f32[*B, D]", "f32[*B, D]"),
        ("f32[]", "f32[]"),
        ("f32[()]", "f32[]"),
        ("f32", "f32[]"),
        ("bool[N,]", "bool[N]"),
        ("float", "float"),
        ("int", "int"),
        ("bool", "bool"),
        ("mt.f32[M, N]", "f32[M, N]"),
        ("'f32[M]'", "f32[M]"),
        ("i8[M*(N+1)//2 - 3%K, 4]", "i8[M * (N + 1) // 2 - 3 % K, 4]"),
        ("u8[M - (N - 1)]", "u8[M - (N - 1)]"),
        ('Float32[Tensor, "M N"]', "f32[M, N]"),
        ('Float[Array, "*B D+1 4"]', "f32[*B, D + 1, 4]"),
        ('jt.BFloat16[torch.Tensor, ""]', "bf16[]"),
        ('UInt8[Array, "N"]', "u8[N]"),
        ('Bool[Array, "N"]', "bool[N]"),
    ],
)
def test_types(text: str, shown: str) -> None:
    assert format_type(parse_type(text)) == shown


@pytest.mark.parametrize(
    "text", ["(f32[M], f32[N])", "tuple[f32[M], f32[N]]", '("f32[M]", "f32[N]")', '"(f32[M], f32[N])"']
)
def test_several_outputs(text: str) -> None:
    function = parse_module(f"def f(x) -> {text}: return x, x").functions[0]
    assert [format_type(kind) for kind in function.returns or ()] == ["f32[M]", "f32[N]"]


@pytest.mark.parametrize(
    "text, code, under, message",
    [
        ("f33[M]", "MT0202", "f33", "there is no dtype `f33`"),
        ("float32[M]", "MT0202", "float32", "there is no dtype `float32`"),
        ("Tensor", "MT0004", "Tensor", "`Tensor` does not say dtype and shape"),
        ("np.ndarray", "MT0004", "np.ndarray", "`ndarray` does not say dtype and shape"),
        ("Float32", "MT0004", "Float32", "`Float32` does not say the shape"),
        ("tuple[f32]", "MT0004", "tuple", "`tuple` does not say dtype and shape"),
        ("f32[..., M]", "MT0004", "...", "`...` is not a dimension"),
        ("f32[:]", "MT0004", ":", "a dimension needs a name or a size"),
        ("f32[M**2]", "MT0004", "M**2", "this is not a dimension"),
        ("f32[-1]", "MT0004", "-1", "this is not a dimension"),
        ("f32[M] | None", "MT0004", "f32[M] | None", "this is not a type"),
        ("3", "MT0004", "3", "this is not a type"),
        ('Float[Array, "... N"]', "MT0004", "...", "`...` is not supported in a shape"),
        ('"f32[M, "', "MT0001", "[", "this `[` is never closed"),
        (r'"f\tf"', "MT0004", r'"f\tf"', "this string cannot be read as a type"),
        ("", "MT0003", "", "there is nothing here"),
    ],
)
def test_bad_types(text: str, code: str, under: str, message: str) -> None:
    error = failure(parse_type, text)
    assert (error.code, error.span and error.span.text, error.message) == (code, under, message)


# Precedence, compared with Python's own parser

UNARY = {python.USub: "-", python.UAdd: "+", python.Invert: "~"}
BINARY = {
    python.Add: "+", python.Sub: "-", python.Mult: "*", python.Div: "/", python.FloorDiv: "//",
    python.Mod: "%", python.Pow: "**", python.MatMult: "@", python.BitAnd: "&", python.BitOr: "|",
    python.BitXor: "^", python.LShift: "<<", python.RShift: ">>",
}  # fmt: skip
COMPARE = {
    python.Eq: "==", python.NotEq: "!=", python.Lt: "<", python.LtE: "<=", python.Gt: ">", python.GtE: ">=",
}  # fmt: skip


def shape(node: Any) -> Any:
    """A tree of minitri without spans, for comparisons."""
    match node:
        case ast.Name(id=id):
            return id
        case ast.Number(value=value) | ast.String(value=value):
            return value
        case ast.NoneLiteral() | None:
            return None
        case ast.EllipsisLiteral():
            return ...
        case ast.Tuple(elements=elements):
            return (type(node).__name__, *map(shape, elements))
        case ast.Unary(op=op, operand=operand):
            return (op, shape(operand))
        case ast.Binary(op=op, left=left, right=right) | ast.Compare(op=op, left=left, right=right):
            return (op, shape(left), shape(right))
        case ast.Conditional(test=test, body=body, orelse=orelse):
            return ("if", shape(test), shape(body), shape(orelse))
        case ast.Call(function=function, args=args, keywords=keywords):
            return ("call", function, [*map(shape, args)], {key: shape(value) for key, value in keywords})
        case ast.Attribute(value=value, name=name):
            return (".", shape(value), name)
        case ast.Slice(start=start, stop=stop, step=step):
            return ("slice", shape(start), shape(stop), shape(step))
        case ast.Subscript(value=value, indices=indices):
            return ("[]", shape(value), [*map(shape, indices)])


def python_shape(node: Any) -> Any:
    """The same for a tree of Python's parser."""
    match node:
        case python.Name(id=id):
            return id
        case python.Constant(value=value):
            return value
        case python.Tuple(elts=elements) | python.List(elts=elements):
            return (type(node).__name__, *map(python_shape, elements))
        case python.UnaryOp(op=op, operand=operand):
            return (UNARY[type(op)], python_shape(operand))
        case python.BinOp(left=left, op=op, right=right):
            return (BINARY[type(op)], python_shape(left), python_shape(right))
        case python.Compare(left=left, ops=[op], comparators=[right]):
            return (COMPARE[type(op)], python_shape(left), python_shape(right))
        case python.IfExp(test=test, body=body, orelse=orelse):
            return ("if", python_shape(test), python_shape(body), python_shape(orelse))
        case python.Call(func=function, args=args, keywords=keywords):
            receiver = [python_shape(function.value)] if isinstance(function, python.Attribute) else []
            name = function.attr if isinstance(function, python.Attribute) else function.id  # type: ignore
            options = {keyword.arg: python_shape(keyword.value) for keyword in keywords}
            return ("call", name, [*receiver, *map(python_shape, args)], options)
        case python.Attribute(value=value, attr=name):
            return (".", python_shape(value), name)
        case python.Slice(lower=start, upper=stop, step=step):
            return ("slice", *map(python_shape, (start, stop, step)))
        case python.Subscript(value=value, slice=python.Tuple(elts=[_, *_] as indices)):
            return ("[]", python_shape(value), [*map(python_shape, indices)])
        case python.Subscript(value=value, slice=index):
            return ("[]", python_shape(value), [python_shape(index)])
        case None:
            return None


def joined(*parts: Any) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


BLANK = st.sampled_from(["", " ", "  "])
ATOMS = st.sampled_from("a b foo _x T match True None 0 7 1_000 0xfF 0b1 0o17 1.5 2. .5 1e-5 1E3 3.e+2 ()".split())


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operator = st.sampled_from([*BINARY.values(), *COMPARE.values()])
    index = st.one_of(inner, st.sampled_from([":", "...", "None", "1:", "::-1"]), joined(inner, ":", inner))
    return st.one_of(
        joined(inner, " ", operator, BLANK, inner),
        joined(inner, BLANK, operator, " ", inner),
        joined(st.sampled_from(["-", "+", "~", "- -"]), inner),
        joined("(", inner, ")"),
        joined(inner, " if ", inner, " else ", inner),
        joined("f(", inner, ", ", inner, ",)"),
        joined("f(", inner, ", axis=", inner, ")"),
        joined("(", inner, ").sum()"),
        joined("x[", index, ", ", index, "]"),
        joined("(", inner, ")[", index, "]"),
        joined("(", inner, " , ", inner, ").mT"),
        joined("[", inner, ", ", inner, ", ]"),
    )


EXPRESSIONS = st.recursive(ATOMS, grown, max_leaves=12)


def is_python(text: str) -> bool:
    try:
        return bool(python.parse(text, mode="eval"))
    except SyntaxError:
        return False


@LIGHT
@given(EXPRESSIONS)
def test_precedence_is_pythons(text: str) -> None:
    try:
        ours = shape(parse_expression(text))
    except ParseError as error:
        assert error.message == "comparisons cannot be chained" or not is_python(text), str(error)
        return
    assert ours == python_shape(python.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("-x**2", ("-", ("**", "x", 2))),
        ("2**-1", ("**", 2, ("-", 1))),
        ("a**b**c", ("**", "a", ("**", "b", "c"))),
        ("a - b - c", ("-", ("-", "a", "b"), "c")),
        ("a | b & c == d", ("==", ("|", "a", ("&", "b", "c")), "d")),
        ("-x.T", ("-", (".", "x", "T"))),
        ("a, b", ("Tuple", "a", "b")),
        ("a,", ("Tuple", "a")),
        ("(a)", "a"),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_shapes(text: str, expected: Any) -> None:
    assert shape(parse_expression(text)) == expected


# Mistakes in expressions: code, text above the caret, message

MISTAKES = [
    ("", "MT0003", "", "there is nothing here"),
    ("  \n # only a comment", "MT0003", "", "there is nothing here"),
    ("a +", "MT0001", "+", "an operand is missing after `+`"),
    ("a ** ** b", "MT0001", "**", "an operand is missing after `**`"),
    ("* a", "MT0002", "*", "the language has no starred parameters and arguments"),
    ("f(,)", "MT0001", ",", "an operand is missing before `,`"),
    ("(a + b", "MT0001", "(", "this `(` is never closed"),
    ("f(a b", "MT0001", "(", "this `(` is never closed"),
    ("a)", "MT0001", ")", "this `)` closes nothing"),
    ("(a]", "MT0001", "]", "`]` cannot close the `(` of line 1"),
    ("a b", "MT0001", "b", "an operator is missing before `b`"),
    ("a = b", "MT0001", "=", "`=` has no meaning here"),
    ("a\n+ b", "MT0001", "+", "the expression has ended on the line before"),
    ("a if b", "MT0001", "", "this conditional has no `else`"),
    ("a if b else", "MT0001", "else", "something is missing after `else`"),
    ("a.", "MT0001", ".", "something is missing after `.`"),
    ("a.if", "MT0001", "if", "`if` is a keyword of Python, not a name"),
    ("x[]", "MT0001", "x[]", "this subscript is empty"),
    ("2x", "MT0001", "2x", "`2x` is not a number"),
    ("012", "MT0001", "012", "`012` is not a number"),
    ("1__0", "MT0001", "1__0", "`1__0` is not a number"),
    ("0xg", "MT0001", "0xg", "`0xg` is not a number"),
    ("1.T", "MT0001", "1.T", "`1.T` is not a number"),
    ("é + 1", "MT0001", "é", "the character `é` (U+00E9) has no meaning here"),
    ("a × b", "MT0001", "×", "the character `×` (U+00D7) has no meaning here"),
    ("a\0b", "MT0001", "\0", "the text holds U+0000, which is not a character of any program"),
    ("a # \ud800", "MT0001", "\ud800", "the text holds U+D800, which is not a character of any program"),
    ("a && b", "MT0001", "&&", "`&&` is not an operator"),
    ("!a", "MT0001", "!", "`!` is not an operator"),
    ('"abc', "MT0001", '"', "this string is never closed"),
    ("a \\ b", "MT0001", "\\", "a `\\` only continues a line, as its last character"),
    ("return a", "MT0001", "return", "a `return` stands at the end of a function"),
    ("a < b < c", "MT0002", "a < b < c", "comparisons cannot be chained"),
    ("a < b == c > d", "MT0002", "a < b == c > d", "comparisons cannot be chained"),
    ("a and b", "MT0002", "and", "the language has no `and`"),
    ("a or b", "MT0002", "or", "the language has no `or`"),
    ("not a", "MT0002", "not", "the language has no `not`"),
    ("a is None", "MT0002", "is", "the language has no `is`"),
    ("a in b", "MT0002", "in", "the language has no `in`"),
    ("lambda x: x", "MT0002", "lambda", "the language has no `lambda`"),
    ("[x for x in y]", "MT0002", "for", "the language has no loops and comprehensions"),
    ("sum(x for x in y)", "MT0002", "for", "the language has no loops and comprehensions"),
    ("await x", "MT0002", "await", "the language has no `await`"),
    ("(yield x)", "MT0002", "yield", "the language has no generators"),
    ("(x := 1)", "MT0002", ":", "the language has no `:=`"),
    ("f(*x)", "MT0002", "*", "the language has no starred parameters and arguments"),
    ("f(**x)", "MT0002", "**", "the language has no starred parameters and arguments"),
    ("{a: 1}", "MT0002", "{", "there are no dicts and sets"),
    ("a; b", "MT0002", ";", "statements are not separated by `;`"),
    ("1j", "MT0002", "1j", "there are no complex numbers"),
    ('f"{x}"', "MT0002", 'f"{x}"', "the language has no f-strings"),
    ('rb"x"', "MT0002", 'rb"x"', "the language has no byte strings"),
    ('"hello"', "MT0002", '"hello"', "a string is no value"),
    ('x["a"]', "MT0002", '"a"', "a string is no value"),
    ("1e400", "MT0208", "1e400", "1e400 is past the largest float, 1.7976931348623157e308"),
    ("x + -1.8e308", "MT0208", "1.8e308", "1.8e308 is past the largest float, 1.7976931348623157e308"),
    ('f(m="\\x41")', "MT0002", '"\\x41"', "the escapes \\x, \\u, \\U and \\N are not supported in a string"),
    ("x[*B]", "MT0002", "*B", "`*B` belongs in types only"),
    ("x += 1", "MT0002", "+=", "the language has no augmented assignment"),
    ("f(x)(y)", "MT0002", "f(x)", "only a name can be called"),
    ("print(x)", "MT0002", "print", "a program cannot print"),
    ("f(a=1, a=2)", "MT0102", "a=2", "`a` is given twice"),
    ("f(a=1, b)", "MT0102", "b", "this argument follows a named one"),
    ("9" * 401, "MT0401", "9" * 401, "a number has 401 digits, the limit is 400"),
    (str(2**64), "MT0401", str(2**64), "this integer does not fit in 64 bits"),
    ("x" * 201, "MT0401", "x" * 201, "a name has 201 characters, the limit is 200"),
    ("(" * 5001 + "x" + ")" * 5001, "MT0401", "(", "more than 5,000 brackets are open here"),
    ("x" * (Limits().source + 1), "MT0401", "x", "the text has 65,537 characters, the limit is 65,536"),
]


@pytest.mark.parametrize("text, code, under, message", MISTAKES, ids=[m[0][:20] or "empty" for m in MISTAKES])
def test_mistakes(text: str, code: str, under: str, message: str) -> None:
    error = failure(parse_expression, text)
    assert (error.code, error.span and error.span.text, error.message) == (code, under, message)
    assert str(error) == f"{render(error)}\n  = more: minitri explain {code}" == getattr(error, "msg", str(error))
    if code == "MT0002":
        assert error.help, "what to write instead"


# Mistakes in modules

MODULE_MISTAKES = [
    ("", "MT0003", 1, "the module has no function"),
    ('"""doc"""', "MT0003", 1, "the module has no function"),
    ("x = 1", "MT0002", 1, "only functions stand on the top level"),
    ("import numpy", "MT0002", 1, "the language has no imports"),
    ("class A: pass", "MT0002", 1, "the language has no classes"),
    ("@jit\ndef f(x): return x", "MT0002", 1, "the language has no decorators"),
    ("async def f(x): return x", "MT0002", 1, "the language has no `async`"),
    ("def f(x): return x\n  def g(x): return x", "MT0001", 2, "this line is indented, but no block was opened"),
    ("def f(x)\n  return x", "MT0001", 1, "a `:` is missing here"),
    ("def f(x) return x", "MT0001", 1, "a `:` is missing here"),
    ("def f(x):\nreturn x", "MT0001", 2, "the body of a function is indented"),
    ("def f(x):\n\ndef g(x): return x", "MT0001", 1, "this function has no body"),
    ("def f(x):\n    y = x\n  return y", "MT0001", 3, "this line is indented less than its block, but matches no line above"),
    ("def f(x):\n    y = x\n\treturn y", "MT0001", 3, "tabs and spaces are mixed in the indentation"),
    ("def f(x):\n  y = x\n    return y", "MT0001", 3, "this line is indented, but no block was opened"),
    ("def f(x):\n  return relu(x\ndef g(x):\n  return x", "MT0001", 2, "this `(` is never closed"),
    ("def f(x:\n  return x", "MT0001", 1, "this `(` is never closed"),
    ("def if(x): return x", "MT0001", 1, "`if` is a keyword of Python, not a name"),
    ("def f(class): return x", "MT0001", 1, "`class` is a keyword of Python, not a name"),
    ("def f(*x): return x", "MT0002", 1, "the language has no starred parameters and arguments"),
    ("def f(x, x): return x", "MT0104", 1, "parameter `x` is given twice"),
    ("def f(x): return x\ndef f(y): return y", "MT0104", 2, "function `f` is defined twice"),
    ("def f(x=1, y): return x", "MT0001", 1, "parameter `y` has no default, but follows one that has"),
    ("def f(x: f32[M] = 1): return x", "MT0002", 1, "array parameter `x` has a default"),
    ("def f(x):\n  y = x", "MT0002", 1, "function `f` returns nothing"),
    ('def f(x):\n  "doc"', "MT0002", 1, "function `f` returns nothing"),
    ("def f(x): pass", "MT0002", 1, "the language has no `pass`"),
    ("def f(x): return", "MT0002", 1, "this `return` has no value"),
    ("def f(x):\n  return x\n  y = x", "MT0002", 3, "this comes after the `return`"),
    ("def f(x):\n  x + 1\n  return x", "MT0002", 2, "this statement does nothing"),
    ("def f(x):\n  def g(y): return y\n  return x", "MT0002", 2, "the language has no functions inside functions"),
    ("def f(x):\n  for i in x: y = i\n  return x", "MT0002", 2, "the language has no loops and comprehensions"),
    ("def f(x):\n  if x: return 1\n  return 2", "MT0002", 2, "the language has no `if` statements"),
    ("def f(x):\n  y = x\n  else: y = 1\n  return x", "MT0002", 3, "the language has no `else` blocks"),
    ("def f(x):\n  x[0] = 1\n  return x", "MT0002", 2, "arrays are never changed"),
    ("def f(x):\n  f(x) = 1\n  return x", "MT0001", 2, "this cannot be assigned to"),
    ("def f(x):\n  a, (b, c) = x\n  return x", "MT0002", 2, "targets cannot be nested or empty"),
    ("def f(x):\n  a = b = x\n  return x", "MT0002", 2, "the language has no chained assignment"),
    ("def f(x):\n  a: f32 = x\n  return x", "MT0002", 2, "the language has no annotations on assignments"),
    ("def f(x):\n  a **= x\n  return x", "MT0002", 2, "the language has no augmented assignment"),
    ("def f(x):\n  print(x)\n  return x", "MT0002", 2, "a program cannot print"),
    ("def f(x: g(3)): return x", "MT0004", 1, "this is not a type"),
    ("def f(x) -> None: return x", "MT0004", 1, "this is not a type"),
]  # fmt: skip


@pytest.mark.parametrize("text, code, line, message", MODULE_MISTAKES)
def test_module_mistakes(text: str, code: str, line: int, message: str) -> None:
    error = failure(parse_module, text)
    assert error.span is not None
    place = error.span.source.line_column(error.span.start)[0]
    assert (error.code, place, error.message) == (code, line, message)


def test_an_error_shows_the_place() -> None:
    expected = """
        error[MT0002]: comparisons cannot be chained
          --> clip.mt:2:12
          2 |     return 0 < x < 1
            |            ^^^^^^^^^
          = help: write `(0 < x) & (x < 1)`
    """
    error = failure(parse_module, "def f(x):\n    return 0 < x < 1\n", "clip.mt")
    assert render(error) == textwrap.dedent(expected).strip()


# Layout that Python accepts


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffdef f(x):\n    return x\n",
        "def f(x):\r\n    y = x\r\n    return y\r\n",
        "def f(x):\r    y = x\r    return y",
        "def f(x):\n\ty = x\n\treturn y",
        "\n\n# comment\ndef f(x):  # comment\n\n  # odd comment\n    y = x\n        # another\n\n    return y",
        "def f(x): return x",
        "def f(\n    x,\n):\n    return (\n\n  x # comment\n    )\n",
        "def f(x):\n    return x + \\\n  1",
        "\f\ndef f(x):\n\f    return x",
        'def f(x):\n    r"""doc \\x"""\n    return x\n\n\n',
    ],
)
def test_layout(text: str) -> None:
    assert parse_module(text).functions[0].name == "f"
    python.parse(text.encode())


def test_a_completely_indented_text_is_accepted() -> None:
    text = "\n    # first\n    def f(x):\n        return x\n\n    def g(x):\n        return f(x)\n    "
    assert [function.name for function in parse_module(text).functions] == ["f", "g"]
    assert shape(parse_expression("\n   a + b\n  ")) == ("+", "a", "b")


# Programs


def test_program_parameters_keep_their_order() -> None:
    program = parse_program("y + n", "<e>", {"y": "f32[N]", "n": "int", "u": None})
    (main,) = program.functions
    assert [param.name for param in main.params] == ["y", "n", "u"]
    assert main.params[2].annotation is None


def test_a_module_is_compiled_unchanged() -> None:
    text = "def helper(x): return x\ndef entry(x): return helper(x)"
    assert [function.name for function in parse_program(text, "<m>", {}).functions] == ["helper", "entry"]
    assert failure(parse_program, text, "<m>", {"x": "f32"}).code == "MT0102"


@pytest.mark.parametrize("name", ["", "a b", "é", "if", "x\n", "x" * 201])
def test_program_parameters_need_names(name: str) -> None:
    assert failure(parse_program, "x", "<e>", {name: "f32"}).code == "MT0001"


def test_an_error_in_a_parameter_type_names_the_parameter() -> None:
    error = failure(parse_program, "x", "<e>", {"x": "f33[M]"})
    assert str(error.span) == "<type of x>:1:1"


# Depth


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["x"] * 20_000),
        "(" * 5_000 + "x" + ")" * 5_000,
        "f(" * 5_000 + "x" + ")" * 5_000,
        "-" * 20_000 + "x",
        "x" + "**x" * 20_000,
        "x" + ".T" * 20_000,
        "x" + "[0]" * 20_000,
        "x if x else " * 5_000 + "x",
        "f(" + "x," * 20_000 + ")",
    ],
    ids=[
        "sum",
        "parentheses",
        "calls",
        "minus",
        "power",
        "attribute",
        "subscript",
        "conditional",
        "arguments",
    ],
)
def test_nesting_depth_has_no_limit(text: str) -> None:
    tree = parse_expression(text)
    assert sum(1 for _ in ast.postorder(tree)) > 0
    assert format_expr(tree)


def test_deep_dimensions() -> None:
    assert format_type(parse_type(f"f32[{'(1+' * 4_000}M{')' * 4_000}]")).endswith("M" + ")" * 4_000 + "]")


def test_threads_share_the_parser() -> None:
    texts = [f"relu(x{i} @ w) + {i}" for i in range(200)]
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parse_expression, texts))
    assert [tree.span.text for tree in trees] == texts
    assert [name.span.text for tree in trees for name in ast.postorder(tree) if isinstance(name, ast.Name)][::2] == [
        f"x{i}" for i in range(200)
    ]


# Fuzzing: only CompileError may be raised, and whatever is accepted must be valid Python

WORDS = st.sampled_from(
    """a x 1 2.5 1e3 0x1 1_0 f sum f32 M ( ) [ ] , : . ... = == != < <= + - * ** / // % @ & | ^ ~ << -> if else
    def return True None and or not lambda for in is import class 'a' "f32[M]" f'' ; \\ ! { } é \x00 := += # axis=
    def\tf(x): print( * """.split()
    + [
        "\n",
        "\n    ",
        "\n\t",
        "\r\n",
        " ",
        "\f",
        "\ufeff",
        "\\\n",
        "def f(x):\n    ",
        "return ",
        "x[",
        '"""doc"""',
    ]
)


def check(parse: Any, text: str, mode: str) -> None:
    try:
        parse(text)
    except CompileError as error:
        assert str(error) and error.span is not None
        return
    if "[]" in "".join(text.split()):
        return  # `f32[]`
    code = re.sub(r"\A([ \t\f]*(#[^\r\n]*)?(\r\n|\r|\n))*", "", text.removeprefix("\ufeff"))
    python.parse(textwrap.dedent(code).lstrip(" \t\f") + "\n", mode=mode)


@FUZZ
@given(st.lists(WORDS, max_size=14), st.sampled_from(["", " "]))
def test_fuzz_words(words: list[str], joint: str) -> None:
    text = joint.join(words)
    check(parse_expression, text, "eval")
    check(parse_module, text, "exec")
    check(parse_module, f"def f(x, n: int = 3):\n    y = {text}\n    return y", "exec")
    check(parse_type, text, "eval")


@FUZZ
@given(st.binary(max_size=60))
def test_fuzz_bytes(data: bytes) -> None:
    text = data.decode("latin-1")
    check(parse_expression, text, "eval")
    check(parse_module, f"def f(x):\n    {text}\n    return x", "exec")


PROGRAM = """def norm(x: f32[*B, D], g: "f32[D]", eps: float = 1e-5) -> (f32[*B, D], f32[D]):
    # a comment
    m, v = mean(x, axis=-1, keepdims=True), x.var(axis=-1)
    return (x - m[:, None, ..., 1:2]) * rsqrt(
        v + eps) * g if eps < 1 else -g ** 2, [1, 2.5]
"""


@FUZZ
@given(EXPRESSIONS, st.integers(0, 60), st.integers(0, 5), st.one_of(st.just(""), WORDS))
def test_fuzz_edits_of_expressions(text: str, start: int, length: int, word: str) -> None:
    check(parse_expression, text[:start] + word + text[start + length :], "eval")


@FUZZ
@given(st.integers(0, len(PROGRAM)), st.integers(0, 8), st.one_of(st.just(""), WORDS))
def test_fuzz_edits_of_a_program(start: int, length: int, word: str) -> None:
    check(parse_module, PROGRAM[:start] + word + PROGRAM[start + length :], "exec")


# Python functions


def decorated(*_: object, **__: object) -> Any:
    return lambda function: function


@decorated(1, about=lambda x: x)
@decorated(
    "several lines",
)
def norm(x: f32[M, N], g: "f32[N]", w: Float32[Tensor, "N"], eps: float = 1e-5) -> mt.f32[M, N]:  # type: ignore
    """The docstring."""

    centred = x - mean(x, axis=-1, keepdims=True)  # type: ignore
    # a comment

    return centred * g + eps  # after it


def test_function_golden() -> None:
    (function,) = from_function(norm).functions
    assert (
        format_module(from_function(norm))
        .splitlines()[0]
        .startswith("def norm(x: f32[M, N], g: f32[N], w: f32[N], eps: float = 1e-5) -> f32[M, N]")
    )
    line, column = function.body[0].span.source.line_column(function.body[0].span.start)
    assert (line, column) == (norm.__code__.co_firstlineno + 7, 5)
    assert function.body[0].span.text.startswith("centred = x - mean")
    assert function.span.source.name == __file__


def test_function_inside_a_function() -> None:
    @decorated()
    def chained(x: "f32[M]"):  # type: ignore
        return 0 < x < 1  # type: ignore

    error = failure(from_function, chained)
    assert error.span is not None and error.span.text == "0 < x < 1"
    assert str(error.span).endswith(f":{chained.__code__.co_firstlineno + 2}:16")


class Holder:
    def method(self, x: "f32[M]"):  # type: ignore
        return x + 1  # type: ignore


def test_function_inside_a_class() -> None:
    assert [param.name for param in from_function(Holder.method).functions[0].params] == ["self", "x"]


async def waits(x: Any) -> Any:
    return x


def yields(x: Any) -> Any:
    yield x


@pytest.mark.parametrize(
    "function, code",
    [
        (lambda x: x, "MT0002"),
        (waits, "MT0002"),
        (yields, "MT0002"),
        (len, "MT0003"),
        (int, "MT0003"),
        (3, "MT0003"),
    ],
)
def test_functions_that_cannot_be_compiled(function: Any, code: str) -> None:
    error = failure(from_function, function)
    assert error.code == code and error.help


def test_a_function_without_source() -> None:
    typed = FunctionType(Holder.method.__code__.replace(co_filename="<stdin>"), {"__name__": "__main__"})
    assert failure(from_function, typed).code == "MT0003"
