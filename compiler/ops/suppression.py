"""Non-maximum suppression: choosing boxes, then writing down which were chosen.

How many there are is known when the first operator has run; the second takes that number as an
attribute, a symbol that is read from the first one's result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BOOL, F32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, as_expr, free_vars
from planish.compiler.graph.ir import Array, TensorType, tensor, unify
from planish.compiler.loop import te
from planish.compiler.loop.ir import Block, Buffer, Combiner, Function, If, Iter, Loop, Stmt, seq

from .base import Arrays, Op, Types
from .sampling import f32
from .windows import number

_LOWEST = float("-inf")


@dataclass(frozen=True)
class NonMaxSuppression(Op):
    """The boxes of each class that are left: the best one, then the best that overlaps none so far.

    Boxes overlap if their intersection is more than ``iou`` (0 without) of their union; only those
    with a score above ``threshold`` count, all without. A box is any two opposite corners [y1, x1,
    y2, x2], with ``centres`` [x, y, width, height]. Of equal scores the first box is better. At
    most ``most`` boxes of a class are taken; picked is -1 behind the last one.

    Shape: boxes [b, n, 4], scores [b, c, n], iou and threshold of one element, f32 ->
    picked i64 [b, c, min(most, n)], counts i64 [b, c].
    Errors: TypeCheckError if shapes do not fit.
    Source: ONNX NonMaxSuppression-11, without the list of indices.
    """

    name = "non_max_suppression"

    most: Expr
    centres: bool = False

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        iou: TensorType | None = None,
        threshold: TensorType | None = None,
    ) -> Types:
        if boxes.rank != 3 or scores.rank != 3:
            raise self.fail(f"boxes {boxes} and scores {scores} must have three axes")
        for what, t in (("boxes", boxes), ("scores", scores), ("iou", iou), ("score", threshold)):
            if t is not None and t.dtype is not F32:
                raise self.fail(f"{what} {t} must be f32")
        for what, t in (("iou", iou), ("score", threshold)):
            if t is not None and t.size != 1:
                raise self.fail(f"the {what} threshold {t} must have one element")
        batch = unify(boxes.shape[0], scores.shape[0], "the batches differ")
        count = unify(boxes.shape[1], scores.shape[2], "boxes and scores differ in number")
        unify(boxes.shape[2], as_expr(4), "a box has not four numbers")
        picked = (batch, scores.shape[1], self.limit(count))
        return tensor(I64, *picked), tensor(I64, *picked[:2])

    def limit(self, count: Expr) -> Expr:
        """How many boxes of a class are taken at most."""
        return n.minimum(n.maximum(self.most, 0), count)

    def build(
        self,
        boxes: TensorType,
        scores: TensorType,
        iou: TensorType | None = None,
        threshold: TensorType | None = None,
    ) -> Function:
        given = {"boxes": boxes, "scores": scores, "iou": iou, "threshold": threshold}
        return _Suppression(self, {k: t for k, t in given.items() if t is not None}).function()

    def reference(
        self,
        boxes: Array,
        scores: Array,
        iou: Array | None = None,
        threshold: Array | None = None,
    ) -> Arrays:
        batches, classes, count = scores.shape
        most = min(max(number(self.most), 0), count)
        limit = np.float32(0) if iou is None else iou.reshape(-1)[0]
        picked = np.full((batches, classes, most), -1, np.int64)
        for b, c in np.ndindex(batches, classes):
            order = np.argsort(-scores[b, c], kind="stable")
            if threshold is not None:
                order = order[scores[b, c][order] > threshold.reshape(-1)[0]]
            chosen: list[int] = []
            for k in order:
                if len(chosen) == most:
                    break
                if not any(self._overlap(boxes[b, k], boxes[b, j]) > limit for j in chosen):
                    chosen.append(int(k))
            picked[b, c, : len(chosen)] = chosen
        return picked, (picked >= 0).sum(2)

    def _overlap(self, a: Array, b: Array) -> np.float32:
        spans = []
        for box in (a, b):
            if self.centres:
                centre, half = box[:2], box[2:] / np.float32(2)
                spans.append((centre - half, centre + half))
            else:
                spans.append((np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])))
        (a_low, a_high), (b_low, b_high) = spans
        sides = np.minimum(a_high, b_high) - np.maximum(a_low, b_low)
        common = sides.prod() if (sides > 0).all() else np.float32(0)
        areas = (a_high - a_low).prod(), (b_high - b_low).prod()
        if common <= 0 or min(areas) <= 0:
            return np.float32(-np.inf)  # no limit is less
        return np.float32(common / (areas[0] + areas[1] - common))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        boxes, scores = f32(2, 9, 4, low=0, high=3), f32(2, 3, 9, low=0, high=1)
        half, low = np.array([0.3], np.float32), np.array(0.2, np.float32)
        for most in (0, 2, 50):
            yield cls(as_expr(most)), [boxes, scores, half, low]
        yield cls(as_expr(4)), [boxes, scores, None, None]
        yield cls(as_expr(9), True), [boxes, scores, half, None]
        same = np.zeros((1, 5, 4), np.float32) + np.array([0, 0, 1, 1], np.float32)
        ties = np.array([[[1, 2, 2, -np.inf, 1]]], np.float32)
        yield cls(as_expr(5)), [same, ties, half, None]
        yield cls(as_expr(5)), [same, ties, np.array(1, np.float32), None]
        yield cls(as_expr(5)), [0 * same, ties, np.array(-np.inf, np.float32), None]
        yield cls(as_expr(3)), [same[:, :0], ties[:, :, :0], half, low]


class _Suppression:
    """Makes the loops of ``non_max_suppression``.

    For each batch and class, ``alive`` says which boxes may still be taken. A step finds the best
    of them (``at[s + 1]``, n if there is none) and strikes out what overlaps it; after a step that
    found none, nothing is left to do.
    """

    def __init__(self, op: NonMaxSuppression, inputs: dict[str, TensorType]) -> None:
        self.op, scores = op, inputs["scores"]
        self.batch, self.classes, self.count = scores.shape
        self.most = op.limit(self.count)
        shapes = [d for t in inputs.values() for d in t.shape]
        self.symbols = free_vars(*shapes, op.most)
        self.b, self.c, self.i, self.s = (Var(f"i{k}", I64) for k in range(4))
        pair = (self.batch, self.classes)
        outputs = {"picked": (I64, (*pair, self.most)), "counts": (I64, pair)}
        temps = {
            "corners": (F32, (self.batch, as_expr(5), self.count)),
            "alive": (BOOL, (*pair, self.count)),
            "best": (F32, (*pair, self.most)),
            "at": (I64, (*pair, n.add(self.most, 1))),
        }
        taken = {v.name for v in self.symbols}
        self.buffers: dict[str, Buffer] = {}
        for name, type in inputs.items():
            self.buffers[name] = Buffer(_unique(name, taken), type.dtype, type.shape)
        for name, (dtype, shape) in outputs.items():
            self.buffers[name] = Buffer(_unique(name, taken), dtype, shape)
        for name, (dtype, shape) in temps.items():
            self.buffers[name] = Buffer(_unique(name, taken), dtype, shape, "global")
        self.inputs = inputs

    def function(self) -> Function:
        b, c, i, s = self.b, self.c, self.i, self.s
        corners = [
            self.store("corners", (b, as_expr(k), i), value, [b, i], label=f"corners_{k}")
            for k, value in enumerate(self.corners())
        ]
        if any(n.eq(d, 0) is n.TRUE for d in (self.batch, self.classes, self.most)):
            return self.with_body(self.store("counts", (b, c), as_expr(0), [b, c], label="none"))
        found = n.lt(self.load("at", b, c, s), self.count)
        nothing = self.store("at", (b, c, n.add(s, 1)), self.count, [b, c, s], [], "none")
        one_class = seq(
            self.store("alive", (b, c, i), self.counts(), [b, c, i], [i], "candidates"),
            self.store("at", (b, c, as_expr(0)), as_expr(0), [b, c], [], "start"),
            self.loop(s, If(found, self.step(), nothing)),
            self.store("picked", (b, c, s), self.picked(), [b, c, s], [s], "picked"),
            self.store(
                "counts", (b, c), self.taken(), [b, c, s], [s], "counts", ("sum", as_expr(0)), s
            ),
        )
        return self.with_body(seq(*corners, self.loop(b, self.loop(c, one_class))))

    def with_body(self, body: Stmt) -> Function:
        params = tuple(self.buffers[k] for k in (*self.inputs, "picked", "counts"))
        temps = tuple(x for x in self.buffers.values() if x.scope == "global")
        return Function(self.op.name, params, 2, self.symbols, temps, body)

    def step(self) -> Stmt:
        """The best box that is alive, and those struck out that overlap it."""
        b, c, i, s = self.b, self.c, self.i, self.s
        alive, score = self.load("alive", b, c, i), self.score()
        lowest, best = n.const(_LOWEST, F32), self.load("best", b, c, s)
        chosen = n.all_of(alive, n.eq(score, best))
        next = n.add(s, 1)
        return seq(
            self.store(
                "best", (b, c, s), n.select(alive, score, lowest), [b, c, s, i], [i], "best",
                ("max", lowest), i,
            ),
            self.store(
                "at", (b, c, next), n.select(chosen, i, self.count), [b, c, s, i], [i], "at",
                ("min", self.count), i,
            ),
            self.store(
                "alive", (b, c, i), self.survives(self.load("at", b, c, next)), [b, c, i, s], [i],
                "alive", ("min", None), s,
            ),
        )  # fmt: skip

    def score(self) -> Expr:
        """The score of a box; one that is no number is the worst."""
        found = self.load("scores", self.b, self.c, self.i)
        return n.select(n.eq(found, found), found, n.const(_LOWEST, F32))

    def counts(self) -> Expr:
        """Whether a box may be taken at all."""
        if "threshold" not in self.inputs:
            return n.TRUE
        return n.lt(self.single("threshold"), self.load("scores", self.b, self.c, self.i))

    def corners(self) -> list[Expr]:
        """The least and greatest coordinates of a box along both axes, and its area."""
        one, two, three, four = (self.load("boxes", self.b, self.i, as_expr(k)) for k in range(4))
        if self.op.centres:
            half = n.const(2, F32)
            width, height = n.div(three, half), n.div(four, half)
            found = [n.sub(one, width), n.sub(two, height), n.add(one, width), n.add(two, height)]
        else:
            found = [
                n.minimum(one, three), n.minimum(two, four),
                n.maximum(one, three), n.maximum(two, four),
            ]  # fmt: skip
        return [*found, n.mul(n.sub(found[2], found[0]), n.sub(found[3], found[1]))]

    def survives(self, best: Expr) -> Expr:
        """Whether a box is another than the best one and does not overlap it."""
        at = n.maximum(n.minimum(best, n.sub(self.count, 1)), 0)
        mine = [self.load("corners", self.b, as_expr(k), self.i) for k in range(5)]
        other = [self.load("corners", self.b, as_expr(k), at) for k in range(5)]
        zero = n.const(0, F32)
        sides = [
            n.sub(n.minimum(mine[k + 2], other[k + 2]), n.maximum(mine[k], other[k]))
            for k in (0, 1)
        ]
        common = n.mul(*sides)
        union = n.sub(n.add(mine[4], other[4]), common)
        limit = self.single("iou") if "iou" in self.inputs else zero
        overlaps = n.all_of(
            *(n.lt(zero, e) for e in (*sides, common, mine[4], other[4], union)),
            n.lt(limit, n.div(common, union)),
        )
        return n.all_of(n.not_(overlaps), n.ne(self.i, best))

    def picked(self) -> Expr:
        found = self.load("at", self.b, self.c, n.add(self.s, 1))
        return n.select(n.lt(found, self.count), found, -1)

    def taken(self) -> Expr:
        found = self.load("at", self.b, self.c, n.add(self.s, 1))
        return n.cast(n.lt(found, self.count), I64)

    # ------------------------------------------------------------------------------- statements

    def load(self, name: str, *indices: Expr) -> Expr:
        return Load(self.buffers[name].name, indices, self.buffers[name].dtype)

    def single(self, name: str) -> Expr:
        """The element of an input that has one."""
        return self.load(name, *(as_expr(0) for _ in self.inputs[name].shape))

    def loop(self, var: Var, body: Stmt) -> Stmt:
        return Loop(var, self.extent(var), body)

    def extent(self, var: Var) -> Expr:
        extents = (self.batch, self.classes, self.count, self.most)
        return extents[int(var.name[1:])]

    def store(
        self,
        name: str,
        indices: tuple[Expr, ...],
        value: Expr,
        over: list[Var],
        own: list[Var] | None = None,
        label: str = "",
        reduction: tuple[Combiner, Expr | None] | None = None,
        reduced: Var | None = None,
    ) -> Stmt:
        """A block over some iterators, in loops over those of them that are its ``own``."""
        iters = tuple(
            Iter(v, self.extent(v), "reduce" if v is reduced else "spatial", v) for v in over
        )
        block = Block(label, iters, self.buffers[name].name, indices, value)
        if reduction is not None:
            block = block.with_(combiner=reduction[0], init=reduction[1])
        body: Stmt = block
        if any(n.eq(self.extent(v), 0) is n.TRUE for v in over):
            return seq()
        for v in reversed(over if own is None else own):
            body = self.loop(v, body)
        return body


def _unique(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


@dataclass(frozen=True)
class SelectedIndices(Op):
    """The boxes that ``non_max_suppression`` picked, as rows of batch, class and box.

    ``count`` is how many there are: the sum of ``counts``. Rows beyond are -1.

    Shape: picked i64 [b, c, m], counts i64 [b, c] -> i64 [count, 3].
    Errors: TypeCheckError if shapes do not fit.
    Source: ONNX NonMaxSuppression-11.
    """

    name = "selected_indices"

    count: Expr

    def infer(self, picked: TensorType, counts: TensorType) -> TensorType:
        if picked.rank != 3 or counts.rank != 2:
            raise self.fail(f"picked {picked} and counts {counts} do not fit together")
        for d, e in zip(picked.shape, counts.shape, strict=False):
            unify(d, e, "picked and counts differ in shape")
        return tensor(I64, self.count, 3)

    def compute(self, picked: te.Tensor, counts: te.Tensor) -> te.Tensor:
        batches, classes, most = picked.shape
        lists = n.mul(batches, classes)

        def held(at: Expr, other: Expr) -> Expr:
            extent = n.maximum(classes, 1)
            found = counts[n.floordiv(other, extent), n.floormod(other, extent)]
            return n.select(n.le(other, at), found, 0)

        ends = te.reduce("sum", (lists,), (lists,), held, "ends")
        # The list that a row is in: as many lists end before it.
        which = te.reduce(
            "sum", (self.count,), (lists,), lambda r, k: n.cast(n.le(ends[k], r), I64), "list"
        )

        def element(row: Expr, column: Expr) -> Expr:
            extent = n.maximum(classes, 1)
            at = which[row]
            batch, kind = n.floordiv(at, extent), n.floormod(at, extent)
            place = n.add(n.sub(row, ends[at]), counts[batch, kind])
            box = picked[batch, kind, n.maximum(n.minimum(place, n.sub(most, 1)), 0)]
            found = n.select(n.eq(column, 0), batch, n.select(n.eq(column, 1), kind, box))
            # A row that is in no list reads nothing.
            return n.select(n.all_of(n.lt(at, lists), n.lt(0, most)), found, -1)

        return te.compute((self.count, 3), element, self.name)

    def reference(self, picked: Array, counts: Array) -> Array:
        rows = [
            (b, c, picked[b, c, k])
            for b, c in np.ndindex(counts.shape)
            for k in range(counts[b, c])
        ]
        rows += [(-1, -1, -1)] * (number(self.count) - len(rows))
        return np.array(rows, np.int64).reshape(-1, 3)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        counts = np.array([[2, 0, 1], [0, 3, 0]])
        picked = np.full((2, 3, 4), -1)
        picked[0, 0, :2], picked[0, 2, :1], picked[1, 1, :3] = [7, 1], [4], [0, 2, 9]
        yield cls(as_expr(6)), [picked, counts]
        yield cls(as_expr(0)), [picked, 0 * counts]
        yield cls(as_expr(8)), [picked, counts]
        yield cls(as_expr(4)), [picked[:, :, :1] * 0 + 5, np.array([[1, 1, 1], [0, 0, 1]])]
