"""Lexers that colour the texts of stages, and diagnostics, on a terminal.

    highlight("%2: f32[i] = add %0, %1", Stage(), TerminalFormatter(colorscheme=COLOURS))

In: the text of a stage. Out: its tokens, for pygments. Each class adds a few rules to the rules of `Common`. stages.toml
names the class of each stage. pygments has lexers for LLVM IR, PTX and AMD's assembly too, but they do not know all the
instructions that Triton emits. They mark the other ones as errors.

Left out: Python, which has a good lexer in pygments, and the question of who gets colour (terminal.py).
"""

from __future__ import annotations

from pygments.lexer import RegexLexer, bygroups, inherit
from pygments.token import (
    Comment,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Token,
    Whitespace,
)

# The colour of each kind of token, on a light and on a dark background. A lexer's error is plain text.
COLOURS = {
    kind: (colour, colour)
    for kind, colour in {
        Token: "", Comment: "brightblack", Keyword: "*brightblue*", Keyword.Type: "cyan", Name.Function: "brightblue",
        Name.Builtin: "brightblue", Name.Decorator: "brightmagenta", Name.Attribute: "yellow", Name.Label: "*brightmagenta*",
        Name.Namespace: "brightmagenta", Number: "brightmagenta", String: "green", Generic.Error: "*brightred*", Generic.Strong: "**",
        Generic.Prompt: "*brightblue*", Generic.Inserted: "*green*",
    }.items()
}  # fmt: skip
TYPES = r"\b(?:bf16|f16|f32|f64|[iu](?:8|16|32|64)|bool)\b"


class Common(RegexLexer):
    """What all texts share: strings, numbers, names and punctuation."""

    tokens = {
        "root": [
            (r"\n|[^\S\n]+", Whitespace),
            (r'"(?:\\.|[^"\\\n])*"', String),
            (r"0[xX][\da-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w$])", Number),
            (r"[\w$][\w$.]*", Name),
            (r"[-+*/%<>=!|&~^@]+", Operator),
            (r"[][(){},.:;?]", Punctuation),
        ]
    }


class Tree(Common):
    """The syntax tree. A line is a node, with its line and column in the source: `axis=unary -    3:22`."""

    tokens = {
        "root": [
            (
                r"^( *)(\w+=)?(\w+)(.*?)( +)(\d+:\d+)$",
                bygroups(Whitespace, Name.Attribute, Keyword, Name, Whitespace, Comment),
            ),
            inherit,
        ]
    }


class Stage(Common):
    """The IRs of minitri: `%2: f32[i, j] = add %0, %1 {over = [j]}`."""

    tokens = {
        "root": [
            (r"#.*", Comment),
            (r"^( +)(fused|apart|again)\b(.*)", bygroups(Whitespace, Keyword, Text)),
            (r"^( *)(graph|plan|kernel|program)( )([\w.]+)", bygroups(Whitespace, Keyword, Whitespace, Name.Function)),
            (
                r"^( *)(grid|loop|whole|for|next|store|return|require|temporary|ledger)\b",
                bygroups(Whitespace, Keyword),
            ),
            (r"(\] )(=)( )([a-z_][\w.]*)", bygroups(Punctuation, Operator, Whitespace, Name.Function)),
            (r"[a-z_]\w*(?= = )", Name.Attribute),
            (r"\b(?:input|output|scalar|temporary|over|reduce|by|in|lanes|else)\b", Keyword),
            (TYPES, Keyword.Type),
            (r"[%@$]\w+", Name.Variable),
            inherit,
        ]
    }


class MLIR(Common):
    """TTIR and TTGIR. Locations (`loc(#loc3)`) are comments here: they say where a line came from."""

    tokens = {
        "root": [
            (r"//.*", Comment),
            (r"^#loc.*", Comment),
            (r"\bloc\(", Comment, "location"),
            (r"%[\w$.-]+(?:#\d+)?(?::\d+)?", Name.Variable),
            (r"\^\w+", Name.Label),
            (r"@[\w$.-]+", Name.Function),
            (r"[!#][\w$.]+", Keyword.Type),
            (r"0x[\dA-F]+\b", Number),
            (r"(\d+|\?)(x)", bygroups(Number, Punctuation)),
            (r"(?:\b|(?<=x))(?:[su]?i\d+|b?f\d+\w*|index|none|tensor|vector|memref)\b", Keyword.Type),
            (r"[a-z_][\w$-]*(?:\.[\w$-]+)*(?= = )", Name.Attribute),
            (r"[a-z_][\w$]*(?:\.[\w$-]+)+", Name.Function),
            (r"\b(?:module|attributes|public|private|to|step|iter_args|dense|true|false)\b", Keyword),
            inherit,
        ],
        "location": [(r"[^()]+", Comment), (r"\(", Comment, "#push"), (r"\)", Comment, "#pop")],
    }


class LLVM(Common):
    """LLVM IR. Metadata (`!dbg !12`) is a comment here."""

    tokens = {
        "root": [
            (r";.*", Comment),
            (r"^!.*", Comment),
            (r"![\w.]+", Comment),
            (r"^[\w$.-]+:", Name.Label),
            (r'%(?:[\w$.-]+|"[^"]*")', Name.Variable),
            (r'@(?:[\w$.-]+|"[^"]*")', Name.Function),
            (r"#\d+", Name.Attribute),
            (r"\b(?:i\d+|half|bfloat|float|double|ptr|void|label|metadata)\b", Keyword.Type),
            (
                r"^(  )(?:(%[\w$.-]+)( = ))?((?:tail )?[a-z]\w*)",
                bygroups(Whitespace, Name.Variable, Operator, Name.Builtin),
            ),
            (r"\b(?:define|declare|attributes|source_filename|target|x|to|true|false|poison|undef|null)\b", Keyword),
            inherit,
        ]
    }


class PTX(Common):
    """NVIDIA's virtual assembly: `@%p1 bra $L__BB0_3;`."""

    tokens = {
        "root": [
            (r"//.*", Comment),
            (r"^[\w$.]+:(?!:)", Name.Label),
            (r"(@!?%?\w+)(\s+)([a-z][\w.:]*)", bygroups(Name.Decorator, Whitespace, Name.Builtin)),
            (r"^([\t ]*)([a-z][\w.:]*)", bygroups(Whitespace, Name.Builtin)),
            (r"\.[a-zA-Z_][\w.:]*", Keyword.Type),
            (r"%[\w$.]+", Name.Variable),
            (r"0[fdFD][\da-fA-F]+", Number),
            inherit,
        ]
    }


class SASS(Common):
    """NVIDIA's machine code: `--:-:-:-:8  @!P0 BRA LBB0;` has control codes, a condition and an instruction."""

    tokens = {
        "root": [
            (r"//.*", Comment),
            (r"^Function:.*|^[\w.$]+:$", Name.Label),
            (
                r"^((?:[\w-]+:){4}\w+)(\t)(@!?\w+ )?([A-Z][\w.]*)",
                bygroups(Comment, Whitespace, Name.Decorator, Name.Builtin),
            ),
            (r"\b(?:U?R(?:\d+|Z)|U?P[\dT]|SR_[\w.]+)\b(?:\.\w+)*", Name.Variable),
            inherit,
        ]
    }


class AMDGCN(Common):
    """AMD's assembly, which ends with metadata in YAML."""

    tokens = {
        "root": [
            (r"//.*|;.*", Comment),
            (r"^(?:---|\.\.\.)$", Punctuation),
            (r"^[\w$.]+:", Name.Label),
            (r"^([\t ]*)((?:- )?)(\.?[\w.]+:)", bygroups(Whitespace, Punctuation, Name.Attribute)),
            (r"^([\t ]*)(\.[\w.]+)", bygroups(Whitespace, Keyword)),
            (r"^([\t ]*)([a-z]\w+)", bygroups(Whitespace, Name.Builtin)),
            (r"\b(?:[asv](?:\d+|\[\d+:\d+\])|vcc|exec|scc|m0)\b", Name.Variable),
            inherit,
        ]
    }


class Diagnostic(RegexLexer):
    """An error as `minitri.base.diagnostics` renders it."""

    tokens = {
        "root": [
            (r"^(error)(\[\w+\])?(:)(.*)", bygroups(*[Generic.Error] * 2, *[Generic.Strong] * 2)),
            (r"^ *-->", Generic.Prompt),
            (r"^ +\d* \|( *\^+.*)?", Generic.Prompt),
            (r"^( +=)( help:)", bygroups(Generic.Prompt, Generic.Inserted)),
            (r"^( +=)( note:)", bygroups(Generic.Prompt, Generic.Strong)),
            (r".+|\n", Text),
        ]
    }
