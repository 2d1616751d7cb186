"""Provenance, the data behind the explorer: the graph nodes that each line of each stage comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
import tracing

import minitri as mt
from minitri.explore.debug_locations import (
    TENSOR,
    Row,
    amdgcn_rows,
    llvm_rows,
    mlir_rows,
    ptx_rows,
    sass_rows,
    with_tensor_memory,
)
from minitri.explore.instruction_registers import effects
from minitri.explore.provenance import Trace
from minitri.kernels.ir import Compute, Store

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
LINEAR = """\
def linear(x: f16[M, K], w: f16[N, K], b: f16[N]) -> f16[M, N]:
    h = x @ w.mT + b
    return relu(h)
"""


def traced(text: str, **sizes: int) -> Trace:
    return Trace(mt.compile(text).lower(**sizes).compilation)


def places(trace: Trace, stage: str, line: str) -> set[str]:
    """The source texts of the nodes of the first line that contains `line`."""
    shown = trace[stage]
    texts = shown.text.split("\n")
    (number, *_) = [k for k, text in enumerate(texts) if line in text]
    return {s.text for k in shown.lines[number] for s in trace.nodes[k].spans if s.source is trace.source}


def test_every_node_has_a_place_in_the_program() -> None:
    for path in EXAMPLES:
        trace = Trace(mt.compile(path).lower().compilation)
        for node in trace.nodes:
            assert any(s.source is trace.source for s in node.spans), f"{path.name}: {node.text}"
            assert all(s.node == trace.nodes.index(node) for s in node.spans)


def test_a_transpose_is_part_of_its_load() -> None:
    trace = traced(LINEAR, M=64, N=64, K=64)
    for stage, line in (("kernels", "load w"), ("tile.masked", "load w"), ("triton", "tl.load(p1")):
        assert "w.mT" in places(trace, stage, line), stage
    assert "w.mT" not in places(trace, "triton", "tl.load(p0")


def test_a_gather_is_part_of_its_load() -> None:
    trace = traced("def f(w: f32[V, D], k: i64[N]):\n    return w[k] * 2\n")
    assert "w[k]" in places(trace, "kernels", "load w") and "w[k]" not in places(trace, "kernels", "load k")


def test_each_slice_is_part_of_its_own_load() -> None:
    trace = traced("def f(x: f32[N]):\n    return x[1:] + x[:-1]\n")
    own, other = places(trace, "kernels", "load x[i + 1]"), places(trace, "kernels", "load x[i]")
    assert "x[1:]" in own - other and "x[:-1]" in other - own


def test_all_parts_of_a_concat_belong_to_it() -> None:
    trace = traced("def f(x: f32[N], y: f32[N]):\n    return concat((x, y)) * 2\n")
    assert all("concat((x, y))" in places(trace, "kernels", line) for line in ("load x", "load y"))


def test_a_repeated_number_is_part_of_its_constant() -> None:
    trace = traced("def f(x: f32[M, N]):\n    return x[::2] * full((N,), 2.5)\n")
    assert places(trace, "kernels", "const 2.5") >= {"full((N,), 2.5)", "x[::2] * full((N,), 2.5)"}
    assert not any("full" in place for place in places(trace, "kernels", "load x") if "*" not in place)


def test_a_product_and_later_operations_have_their_own_lines() -> None:
    trace = traced(LINEAR, M=64, N=64, K=64)
    assert places(trace, "triton", "rt.dot") == {"x @ w.mT"}
    assert places(trace, "triton", "rt.maximum") == {"relu(h)"}
    assert places(trace, "triton", "tl.store") == {"return relu(h)"}
    assert places(trace, "triton", "tl.load(p2") == {"b: f16[N]"}


def test_nodes_of_a_library_function_belong_to_its_call_too() -> None:
    trace = traced("def f(x: f32[M, N]):\n    return softmax(x) + 1\n", M=64, N=64)
    node = next(n for n in trace.nodes if n.op == "reduce.max")
    assert [s.source.name.rpartition("/")[2] for s in node.spans] == ["normalization.mt", "<module>"]
    assert node.spans[1].text == "softmax(x)"


def test_a_second_occurrence_leads_to_the_same_node() -> None:
    trace = traced("def f(x: f32[N]):\n    return exp(x) * 2 + exp(x)\n")
    (node,) = [n for n in trace.nodes if n.op == "exp"]
    assert [s.text for s in node.spans] == ["exp(x)", "exp(x)"] and len({s.start for s in node.spans}) == 2


def test_a_removed_node_is_part_of_its_replacement() -> None:
    trace = traced("def f(x: f32[A, B]):\n    return exp((x * 1).mT.mT)\n")
    shown = trace["graph.simplified"]
    assert set().union(*shown.lines) == set(range(len(trace.nodes)))


def test_the_lines_of_an_axis_belong_to_the_accesses_along_it() -> None:
    trace = traced("def f(x: f32[M, N], y: f32[N]):\n    return x + y\n", M=100, N=300)
    assert places(trace, "triton", "i = i_tile") >= {"x: f32[M, N]", "x + y"}
    assert "y" not in places(trace, "triton", "i = i_tile")
    assert "y" in places(trace, "triton", "j = ")


def test_an_operation_in_a_shared_loop_belongs_to_its_own_reduction() -> None:
    """The loop has two maxima and two sums. The maxima share a constant, but a maximum belongs to its own array."""
    text = """\
def f(x: f32[M, N], y: f32[M, N]):
    m = max(x, axis=1)[:, None]
    n = max(y, axis=1)[:, None]
    return sum(exp(x - m), axis=1), m + 1, sum(exp(y - n), axis=1), n + 1
"""
    low = mt.compile(text).lower(M=4, N=64, options=mt.Options(blocks={"r": 16}))
    trace = Trace(low.compilation)
    shown, found = trace["tile"], dict[str, list[str]]()
    for nodes, line in zip(shown.lines, shown.text.split("\n")):
        places = {s.text for k in nodes for s in trace.nodes[k].spans}
        for op in ("maximum", "multiply"):
            if f" = {op} " in line:
                found.setdefault(op, []).append("x" if any("(x" in p for p in places) else "y")
                assert any("sum" in p for p in places) == (op == "multiply"), line
    assert found == {"maximum": ["x", "x", "y", "y", "x", "y"], "multiply": ["x", "y", "x", "y"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_there_is_a_row_for_each_line(path: Path) -> None:
    trace = Trace(mt.compile(path).lower().compilation)
    for stage in trace.stages[:7]:
        shown = trace[stage]
        assert len(shown.lines) == shown.text.count("\n"), stage
        assert set().union(*shown.lines) <= set(range(len(trace.nodes)))


@pytest.mark.parametrize("stage", ["graph", "graph.simplified", "kernels", "tile", "tile.masked"])
def test_a_loaded_program_has_the_lines_of_its_text_as_nodes(stage: str) -> None:
    low = mt.compile(LINEAR).lower(M=64, N=64, K=64)
    trace = Trace(mt.load(low[stage], stage).lower().compilation)
    shown = trace["triton"]
    (line,) = [k for k, text in enumerate(shown.text.split("\n")) if "rt.dot" in text]
    ops = {trace.nodes[k].op for k in shown.lines[line]}
    assert ops & {"contract", "dot"} and not ops & {"load", "store"}, ops


# ---- Triton's own stages -----------------------------------------------------------------

SLOW = pytest.mark.slow
QUICK = {("softmax", "cuda:90"), ("softmax", "hip:gfx942"), ("embedding", "cuda:90"), ("matmul", "cuda:100")}
CASES = [pytest.param(p, t, marks=() if (p, t) in QUICK else SLOW) for p in tracing.SIZES for t in tracing.TARGETS]


def test_every_example_is_measured() -> None:
    assert {path.stem for path in EXAMPLES} <= set(tracing.SIZES)


@pytest.mark.parametrize(("program", "target"), CASES)
def test_operations_lead_to_the_source(program: str, target: str) -> None:
    rows = list(tracing.measured(program, tracing.SIZES[program], target))
    assert [r["stage"] for r in rows] == list(mt.compile("x", x="f32[N]").lower(target=target).stages[8:])
    for row in rows:
        mapped = tracing.share([row], "own", "serves")
        assert mapped >= tracing.REQUIRED[row["stage"]], f"{program}, {row['stage']}: {mapped:.1%}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_a_generated_line_holds_one_operation(path: Path) -> None:
    compiled = mt.compile(path).lower().compilation
    for program, kernel in zip(compiled.value("tile.masked"), compiled.value("triton")):
        numbers = [line for line, _ in kernel.lines]
        assert len(numbers) == len(set(numbers))
        shown = dict((op, kernel.source.split("\n")[line - 1]) for line, op in kernel.lines)
        names = {op: text.split(" = ")[0].strip() for op, text in shown.items() if not isinstance(op, Store)}
        for op in program.ops():
            if isinstance(op, Compute) and op in shown:
                for operand in op.args:
                    assert operand not in names or names[operand] in shown[op], (
                        "an operand is computed on the same line"
                    )
                others = set(names[o] for o in names) - {names[o] for o in (op, *op.args) if o in names}
                assert not others & set(shown[op].replace("[", " ").replace("(", " ").replace(",", " ").split())


def test_mlir_operations_have_the_location_of_their_region() -> None:
    text = """\
#loc = loc("<minitri 00>":3:1)
#loc1 = loc("<minitri 00>":7:5)
#loc2 = loc("device.py":20:5)
#loc3 = loc(callsite(#loc2 at #loc1))
    %c = arith.constant 2 : i32 loc(unknown)
    %0 = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%a: f32 loc(#loc2), %b: f32 loc(#loc2)):
      %1 = arith.addf %a, %b : f32 loc(#loc3)
    }) : (tensor<4xf32>) -> f32 loc(#loc3)
    tt.return loc(#loc)
"""
    rows = mlir_rows(text)
    assert [r.lines for r in rows if r.operation] == [(), (7,), (7,), (3,)]
    assert rows[4].defines == ("%c",) and rows[7].uses == ("%a", "%b")


def test_inlined_llvm_locations_lead_to_the_outer_call() -> None:
    text = """\
define void @k0() {
  %1 = fadd float %2, %3, !dbg !5
  ret void
}
!1 = !DIFile(filename: "<minitri 00>", directory: "")
!2 = !DIFile(filename: "device.py", directory: "d")
!3 = distinct !DISubprogram(name: "k0", scope: !1, file: !1, line: 10)
!4 = distinct !DILexicalBlockFile(scope: !3, file: !2, discriminator: 0)
!5 = !DILocation(line: 29, column: 16, scope: !4, inlinedAt: !6)
!6 = !DILocation(line: 18, column: 10, scope: !3)
"""
    rows = [r for r in llvm_rows(text) if r.operation]
    assert [r.lines for r in rows] == [(18,), ()]
    assert rows[0].defines == ("%1",) and rows[0].uses == ("%2", "%3")


def test_inline_assembly_has_one_location() -> None:
    text = """\
\t.file 1 "<minitri 00>"
\t.file 2 "device.py"
\t.loc\t2 5 1, function_name $L0, inlined_at 1 12 9
\tadd.f32 %r1, %r2, %r3;
\t// begin inline asm
\t.loc\t1 17 10
\tmov.u32 %r4, 0;
\t.loc\t1 18 10
\tld.global.b32 { %r4 }, [ %rd1 ];
\t// end inline asm
\t.loc\t1 18 10
\tret;
"""
    rows = [r for r in ptx_rows(text) if r.operation]
    assert [r.lines for r in rows] == [(12,), (17,), (17,), (18,)]


def test_added_routines_belong_to_their_calls() -> None:
    disassembly = """\
\t//## File "device.py", line 3 inlined at "<minitri 00>", line 8
\t//## File "<minitri 00>", line 8
        /*0000*/  CALL.REL.NOINC `($__internal_0_$div) ;
\t//## File "<minitri 00>", line 2
        /*0010*/  EXIT ;
$__internal_0_$div:
        /*0020*/  MUFU.RCP R1, R2 ;
"""
    text = "Function:k0\n--:-\tCALL.REL 0x20;\n--:-\tEXIT;\n--:-\tMUFU.RCP R1, R2;\n--:-\tNOP;\n"
    assert [r.lines for r in sass_rows(text, disassembly) if r.operation] == [(8,), (2,), (8,)]


def test_allocations_of_tensor_memory_belong_to_the_operations_that_use_it() -> None:
    text = """\
\tLDC R1, c[0x0][0x37c];
\tISETP.GE.U32.AND P1, PT, R2, 0x20, PT;
\t@P1 BRA LBB0;
\tUTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR4, UR8;
\tSTS [UR7], R0;
LBB0:
\tIMAD R3, R2, R2, R2;
\tUTCHMMA gdesc[UR10], gdesc[UR12], tmem[UR14], tmem[UR16], idesc[UR17], !UPT;
\tLDTM.x64 R4, tmem[UR4];
\tBAR.SYNC.DEFER_BLOCKING 0x0;
\tUTCATOMSWS.AND URZ, UR4;
\tEXIT;
\tBAR.SYNC.DEFER_BLOCKING 0x0;"""
    places = ((10,), (10,), (10,), (10,), (10,), None, (12,), (27,), (28,), (10,), (10,), (10,), (10,))
    rows = [Row(True, p) if p else Row() for p in places]
    made = with_tensor_memory(rows, text, 10)
    taking = [k for k, row in enumerate(made) if row.defines == (TENSOR,)]
    assert taking == [1, 2, 3, 4, 9, 10] and [k for k, row in enumerate(made) if row.uses == (TENSOR,)] == [7, 8]
    assert (
        with_tensor_memory(rows[:7], "\n".join(text.split("\n")[:7]), 10) == rows[:7]
    )  # no operation uses the tensor memory


def test_amdgcn_directives_are_locations() -> None:
    text = '\t.file\t1 "<minitri 00>"\n\t.loc\t1 4 2\n\ts_add_u32 s1, s2, s3\n.LBB0_1:\n\tv_mov_b32_e32 v1, 0 ; x\n'
    assert [r.lines for r in amdgcn_rows(text) if r.operation] == [(4,), (4,)]


def test_the_end_of_an_amdgcn_block_has_the_location_of_its_start() -> None:
    text = """\
\t.file\t1 "<minitri 00>"
\ts_load_dwordx2 s[2:3], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\t.loc\t1 7 2
\ts_and_saveexec_b64 s[4:5], vcc
\tglobal_load_dword v1, v2, s[2:3]
\t.loc\t1 0 2
\ts_or_b64 exec, exec, s[4:5]
"""
    load, wait, save, read, restore = (r for r in amdgcn_rows(text) if r.operation)
    assert (load.lines, wait.lines, save.lines, restore.lines) == ((), (), (7,), (7,))
    assert wait.defines == load.defines == ("s2", "s3") and "v1" in read.uses  # masked threads keep their value


def test_padding_at_the_end_of_machine_code_is_not_an_instruction() -> None:
    text = "Function:k0\n--:-\tEXIT;\nLBB0:\n--:-\tBRA LBB0;\n--:-\tNOP;\n"
    assert [r.operation for r in sass_rows(text, "")][:5] == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("machine", "text", "defines", "uses"),
    [
        ("ptx", "@%p1 add.s32 %r3, %r1, %r2;", {"%r3"}, {"%p1", "%r1", "%r2", "%r3"}),
        ("ptx", "st.global.b32 [ %rd1 ], { %r1 };", set(), {"%rd1", "%r1"}),
        ("ptx", "ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];", {"%r1", "%r2"}, {"%rd1"}),
        ("sass", "IMAD.WIDE R2, R41, 0x4, R18;", {"R2", "R3"}, {"R41", "R42", "R18", "R19"}),
        ("sass", "FADD2 R4, R8.F32x2.HI_LO, R12.F32x2.HI_LO", {"R4", "R5"}, {"R8", "R9", "R12", "R13"}),
        ("sass", "STTM.x4 tmem[UR20], R68", set(), {"UR20", "R68", "R69", "R70", "R71"}),
        ("sass", "UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR20], tmem[UR30], idesc[UR31], !UPT", set(), {"UR7", "UR9"}),
        ("sass", "LEA R6, P0, R2, UR4, 0x3;", {"R6", "P0"}, {"R2", "UR4"}),
        ("sass", "@!P2 LDG.E.128 R8, desc[UR4][R16.64];", {"R8", "R9", "R10", "R11"}, {"UR4", "R16", "R17", "P2", "R8"}),
        ("sass", "STG.E desc[UR4][R2.64], R4;", set(), {"UR4", "R2", "R3", "R4"}),
        ("sass", "ISETP.GE.AND P0, PT, R9, RZ, PT;", {"P0"}, {"R9"}),
        ("amdgcn", "s_load_dwordx2 s[2:3], s[0:1], 0x0", {"s2", "s3"}, {"s0", "s1"}),
        ("amdgcn", "global_store_dword v0, v1, s[2:3]", set(), {"v0", "v1", "s2", "s3"}),
    ],
)  # fmt: skip
def test_registers_that_instructions_define_and_use(machine: str, text: str, defines: set[str], uses: set[str]) -> None:
    made, used = effects(text, machine)
    assert set(made) == defines and uses <= set(used)
