"""The operator If: branches that are known, and branches that the data choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_harness import check, model_of, node

from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.importer import Importer, import_model
from planish.compiler.frontends.onnx.scopes import Scope
from planish.compiler.graph.ir import Array, Graph
from planish.compiler.ops.control import If

OPSETS = (1, 11, 13, 16, 19, 21, 23, 24, onnx.defs.onnx_opset_version())


def graph(
    nodes: Sequence[onnx.NodeProto], outputs: str, constants: dict[str, Array] | None = None
) -> onnx.GraphProto:
    return helper.make_graph(
        list(nodes),
        "sub_graph",
        [],
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()],
    )


def choice(
    then: onnx.GraphProto, other: onnx.GraphProto, outputs: str = "out", condition: str = "c"
) -> onnx.NodeProto:
    return node("If", condition, outputs, then_branch=then, else_branch=other)


def f32(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def op_of(g: Graph) -> If:
    (found,) = (n.op for n in g.nodes if isinstance(n.op, If))
    return found


def both(
    nodes: onnx.NodeProto | list[onnx.NodeProto], inputs: dict[str, Array], **options: Any
) -> Graph:
    """Checked with a condition ``c`` of either value."""
    for c in (True, False):
        found = check(nodes, {**inputs, "c": np.array(c)}, **options)
    return found


@pytest.mark.parametrize("opset", OPSETS)
def test_either_branch_runs(opset: int) -> None:
    then = graph([node("Transpose", "x", "r", perm=[1, 0])], "r")
    made = choice(then, graph([node("Identity", "x", "s")], "s"))
    x = f32(3, 3)
    for c, want in ((True, x.T), (False, x)):
        found = check(
            model_of(made, {"x": x, "c": np.array(c)}, opset=opset),
            {"x": x, "c": np.array(c)},
            want=[want],
        )
        assert [len(g.inputs) for g in op_of(found).branches] == [1, 1]


def test_branches_take_from_the_graph_around_them() -> None:
    """Values that nodes make, inputs and initialisers; what one takes the other takes too."""
    then = graph([node("Add", "t w", "r")], "r")
    other = graph([node("Mul", "x v", "r")], "r", {"v": f32(3)})
    nodes = [node("Relu", "x", "t"), choice(then, other)]
    found = both(nodes, {"x": f32(2, 3)}, constants={"w": f32(3)}, symbolic=False)
    op = op_of(found)
    assert [len(g.inputs) for g in op.branches] == [2, 2]
    assert [len(g.constants) for g in op.branches] == [1, 1]


def test_branches_without_nodes() -> None:
    """They give what is around them, twice, or a constant."""
    then = graph([], "x x w")
    other = graph([node("Neg", "x", "r")], "r x w")
    x, w = f32(3), f32(1, 2)
    for c, want in ((True, [x, x, w]), (False, [-x, x, w])):
        inputs = {"x": x, "c": np.array(c)}
        check(choice(then, other, "a b d"), inputs, constants={"w": w}, symbolic=False, want=want)


def test_branches_within_branches() -> None:
    """They take from all graphs around them; names of their own hide nothing after them."""
    inner = choice(
        graph([node("Add", "t u", "p")], "p"), graph([node("Sub", "w t", "p")], "p"), "q", "d"
    )
    then = graph([node("Exp", "x", "u"), inner], "q")
    other = graph([node("Neg", "t", "q")], "q")
    nodes = [node("Relu", "x", "t"), choice(then, other)]
    for d in (True, False):
        both(nodes, {"x": f32(2, 3), "d": np.array(d)}, constants={"w": f32(3)}, symbolic=False)


def test_a_condition_of_shapes_is_known_or_not() -> None:
    """Of fixed sizes the branch stands in the graph; of symbols the node stays."""
    nodes = [
        node("Size", "x", "size"),
        node("Less", "size six", "small"),
        choice(graph([node("Neg", "x", "r")], "r"), graph([node("Abs", "x", "r")], "r"),
               condition="small"),
    ]  # fmt: skip
    for size in (5, 7):
        found = check(nodes, {"x": f32(size)}, constants={"six": np.array(6)})
        assert not any(isinstance(n.op, If) for n in found.nodes)
    model = model_of(nodes, {"x": f32(5)}, constants={"six": np.array(6)}, symbolic=True)
    op_of(import_model(model))


def test_sizes_need_to_fit_only_where_a_branch_runs() -> None:
    """What a branch relies on holds whenever it runs, if its condition follows from the sizes."""
    nodes = [
        node("Shape", "x", "m"), node("Shape", "y", "n"), node("Equal", "m n", "same"),
        node("Squeeze", "same", "one"),
        choice(graph([node("Add", "x y", "s"), node("ReduceSum", "s", "r")], "r"),
               graph([node("ReduceSum", "x", "r")], "r"), condition="one"),
    ]  # fmt: skip
    check(nodes, {"x": f32(3), "y": f32(3)})
    model = model_of(nodes, {"x": f32(3), "y": f32(4)}, symbolic=True)
    x, y = f32(3), f32(4)
    check(model, {"x": x, "y": y}, want=[x.sum(keepdims=True)])


def squeezed(x: str, out: str, axis: str = "one") -> list[onnx.NodeProto]:
    """``torch.squeeze`` of an axis, as its exporter writes it: if it has one element."""
    then = graph([node("Squeeze", f"{x} {axis}", f"{out}_then")], f"{out}_then")
    other = graph([node("Identity", x, f"{out}_else")], f"{out}_else")
    return [
        node("Shape", x, f"{out}_shape"),
        node("Gather", f"{out}_shape {axis}", f"{out}_dim", axis=0),
        node("Equal", f"{out}_dim {axis}", f"{out}_is"),
        choice(then, other, out, f"{out}_is"),
    ]


ONE = {"one": np.array([1])}


@pytest.mark.parametrize("extent", [1, 3])
def test_what_follows_branches_of_different_ranks_is_in_both(extent: int) -> None:
    """Each side goes on with its own rank; where they meet again there is one value."""
    nodes = [*squeezed("x", "s"), node("Exp", "s", "e"), node("ReduceSum", "e", "r", keepdims=0)]
    x = f32(2, extent)
    model = model_of(nodes, {"x": x}, constants=ONE, symbolic=True, outputs=["r"])
    check(model, {"x": x}, want=[np.exp(x).sum()])
    assert len(op_of(import_model(model)).then.nodes) > 1


def test_one_rank_fits_what_follows() -> None:
    """The other branch can't run: its condition is one of the call."""
    nodes = [*squeezed("x", "s"), node("Gemm", "s w", "y")]
    x, w = f32(2, 1, 4), f32(4, 3)
    model = model_of(nodes, {"x": x}, constants={"w": w, **ONE}, symbolic=True)
    check(model, {"x": x}, want=[x[:, 0] @ w])
    found = import_model(model)
    assert not any(isinstance(n.op, If) for n in found.nodes)
    assert "x_d1 == 1" in map(str, found.constraints)


def test_many_branches_one_rank_of_which_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is decided once: what follows is not read twice as often for each of them."""
    read: list[str] = []
    plain = Importer.run_node

    def counted(self: Importer, node: onnx.NodeProto, scope: Scope) -> None:
        read.append(node.op_type)
        plain(self, node, scope)

    monkeypatch.setattr(Importer, "run_node", counted)

    def nodes_read(count: int) -> int:
        nodes = []
        for k in range(count):
            then = graph([node("Squeeze", f"x{k} zero", f"a{k}")], f"a{k}")
            other = graph([node("Identity", f"x{k}", f"b{k}")], f"b{k}")
            nodes += [choice(then, other, f"s{k}")]
            nodes += [node("Transpose", f"s{k}", f"t{k}", perm=[1, 0])]
            nodes += [node("Unsqueeze", f"t{k} zero", f"x{k + 1}")]
        given, zero = {"x0": f32(1, 2, 3), "c": np.array(True)}, {"zero": np.array([0])}
        model = model_of(nodes, given, constants=zero, outputs=[f"x{count}"])
        read.clear()
        found = import_model(model)
        assert not any(isinstance(n.op, If) for n in found.nodes)
        return len(read)

    assert nodes_read(16) < 5 * nodes_read(8)


def test_data_chooses_between_ranks() -> None:
    then = graph([node("Identity", "x", "r")], "r")
    other = graph([node("Flatten", "x", "r")], "r")
    nodes = [choice(then, other, "a"), node("ReduceMax", "a", "m", keepdims=0)]
    both(nodes, {"x": f32(2, 3, 4)}, symbolic=False)
    fits = [choice(then, other, "a"), node("Gemm", "a w", "y")]
    x, w = f32(2, 3, 4), f32(12, 5)
    model = model_of(fits, {"x": x, "c": np.array(True)}, constants={"w": w})
    check(model, {"x": x, "c": np.array(False)}, want=[x.reshape(2, 12) @ w])
    assert [str(c) for c in import_model(model).constraints] == ["not a_runs == 1"]


def test_branches_of_different_ranks_within_branches() -> None:
    """What follows goes on outside of the branch, if it is the branch's result that differs."""
    inner = graph([*squeezed("x", "s")], "s", ONE)
    outer = choice(inner, graph([node("Neg", "x", "n")], "n"), "a", "c")
    nodes = [outer, node("ReduceSum", "a", "r", keepdims=0)]
    for extent in (1, 3):
        x = f32(2, extent)
        for c, sign in ((True, 1), (False, -1)):
            inputs = {"x": x, "c": np.array(c)}
            model = model_of(nodes, inputs, symbolic=True)
            check(model, inputs, want=[sign * x.sum()])


def test_neither_rank_fits_what_follows() -> None:
    nodes = [*squeezed("x", "s"), node("Gemm", "s w", "y")]
    model = model_of(nodes, {"x": f32(2, 3, 4, 5)}, constants={"w": f32(4, 3), **ONE},
                     symbolic=True)  # fmt: skip
    with pytest.raises(ImportModelError, match="Gemm"):
        import_model(model)


def test_sizes_need_to_fit_only_where_data_has_a_branch_run() -> None:
    then = graph([node("Add", "x y", "s"), node("ReduceSum", "s", "r")], "r")
    made = choice(then, graph([node("ReduceSum", "x", "r")], "r"))
    x, y = f32(3), f32(4)
    inputs = {"x": x, "y": y, "c": np.array(False)}
    check(model_of(made, inputs, symbolic=True), inputs, want=[x.sum(keepdims=True)])
    inputs = {"x": x, "y": x, "c": np.array(True)}
    check(model_of(made, inputs, symbolic=True), inputs, want=[2 * x.sum(keepdims=True)])


@pytest.mark.parametrize(
    ("then", "other", "message"),
    [
        (([node("Neg", "x", "r")], "r"), ([node("Flatten", "x", "r")], "r"),
         r"branches give f32\[2\] and f32\[2, 1\]"),
        (([node("Neg", "x", "r")], "r"), ([node("Cast", "x", "r", to=7)], "r"),
         r"branches give f32\[2\] and i64\[2\]"),
        (([node("Neg", "x", "r")], "r"), ([node("Neg", "x", "r")], "r x"), "1 and 2 values"),
        (([node("Frob", "x", "r")], "r"), ([], "x"), "there is no operator Frob"),
        (([node("Neg", "z", "r")], "r"), ([], "x"), "'z', which nothing makes"),
        (([node("SequenceConstruct", "x", "r")], "r"), ([], "x"),
         r"a sequence of f32\[2\] from one branch and a tensor of f32 from the other"),
    ],
)  # fmt: skip
def test_branches_that_are_refused(then: Any, other: Any, message: str) -> None:
    model = model_of(choice(graph(*then), graph(*other)), {"x": f32(2), "c": np.array(True)})
    with pytest.raises(ImportModelError, match=message):
        import_model(model)


def test_nodes_that_are_refused() -> None:
    branch = graph([], "x")
    for made, message in (
        (node("If", "c", "out", then_branch=branch), "attribute else_branch is missing"),
        (node("If", "c", "out", then_branch=branch, else_branch=branch, k=1), "attribute k"),
        (node("If", "x", "out", then_branch=branch, else_branch=branch), "is no bool"),
    ):
        with pytest.raises(ImportModelError, match=message):
            import_model(model_of(made, {"x": f32(2), "c": np.array(True)}))


def test_branches_may_call_values_like_the_node_does() -> None:
    """A name is that of the graph it is made in, also where nodes are out of order."""
    inner = choice(graph([node("Abs", "x", "out")], "out"), graph([node("Neg", "x", "out")], "out"))
    other = graph([node("Exp", "x", "late"), node("Neg", "late", "out")], "out")
    nodes = [choice(graph([inner], "out"), other), node("Neg", "out", "late")]
    for ordered in (nodes, nodes[::-1]):
        for c in (False, True):
            x = f32(3)
            inputs = {"x": x, "c": np.array(c)}
            want = [np.abs(x), -np.abs(x)] if c else [-np.exp(x), np.exp(x)]
            model = model_of(ordered, inputs, outputs=["out", "late"])
            check(model, inputs, want=want)
