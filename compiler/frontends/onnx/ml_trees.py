"""Tree ensembles of ai.onnx.ml.

Each version's attributes become one list of nodes, whose leaves go on to themselves, and a table of
what each node adds to each target. The trees' structure is checked here, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import F32, F64, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops.compare import Greater, IsInf
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Div, Sub
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.reduction import ReduceMax, ReduceMin, ReduceSum
from planish.compiler.ops.shape import Reshape, sizes
from planish.compiler.ops.trees import TESTS, UNORDERED, TreeLeaves
from planish.compiler.ops.unary import Neg

from .elementwise import step
from .reader import NodeReader, handles
from .scores import (
    ML,
    Labels,
    beside,
    best,
    chosen,
    labels_of,
    number,
    transform_of,
    transformed,
)

_MODES: Final = tuple(TESTS)[:6]  # as version 5 numbers them; 6 is membership
_MEMBER: Final = 6
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True, eq=False)
class Forest:
    """Nodes of all trees; ``weights`` [node, target], NaN where a node says nothing of one."""

    features: Array
    values: Array
    tests: Array
    first: Array
    second: Array
    roots: Array
    weights: Array

    def depth(self, r: NodeReader) -> int:
        """The steps from a root to the farthest leaf."""
        level = np.unique(self.roots)
        for steps in range(len(self.features) + 1):
            inner = level[self.first[level] != level]
            if not inner.size:
                return steps
            level = np.unique(np.concatenate([self.first[inner], self.second[inner]]))
        raise r.fail("a tree's nodes lead in a circle")


def _leaves(r: NodeReader, x: Value, forest: Forest) -> Value:
    """What each tree says of each row: [n, tree, target]."""
    dtype = x.type.dtype
    tables = (
        r.constant(forest.features.astype(np.int32), "features"),
        r.constant(forest.values.astype(dtype.numpy), "splits"),
        *(
            r.constant(np.ascontiguousarray(t, np.int32), name)
            for t, name in (
                (forest.tests, "tests"),
                (forest.first, "first"),
                (forest.second, "second"),
                (forest.roots, "roots"),
            )
        ),
    )
    used, width = int(forest.features.max(initial=0)), x.type.shape[1]
    if n.lt(used, width) is n.FALSE:
        raise r.fail(f"feature {used} is tested, and {x!r} has {width}")
    return step(r, TreeLeaves(forest.depth(r)), x, *tables)


def _aggregated(r: NodeReader, x: Value, forest: Forest, how: str) -> Value:
    """The trees' weights of each target together, and its base value: [n, target]."""
    fill = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
    told = np.isnan(forest.weights)
    table = np.where(told, fill, forest.weights).astype(x.type.dtype.numpy)
    parts = step(r, Gather(0), r.constant(table, "weights"), _leaves(r, x, forest))
    kinds = {"MIN": ReduceMin, "MAX": ReduceMax}
    total = step(r, kinds.get(how, ReduceSum)((1,), False), parts)
    if how == "AVERAGE":
        count = r.constant(np.array(max(1, len(forest.roots)), table.dtype))
        total = step(r, Div(), total, count)
    based = _based(r, total, table.shape[1])
    leaves = forest.first == np.arange(len(forest.first))
    if how in kinds and told[leaves].any():  # what no tree says anything of is 0
        return step(r, Where(), step(r, IsInf(), total), number(r, 0.0, total), based)
    return based


def _input(r: NodeReader) -> Value:
    """The observations, as floats."""
    x = r.input(0)
    if x.type.rank != 2:
        raise r.fail(f"the observations {x!r} are no matrix")
    return x if x.type.dtype in (F32, F64) else step(r, Cast(F32), x)


# -------------------------------------------------------------------------- versions before 5


def _numbers(r: NodeReader, name: str, dtype: Any = np.int64) -> Array:
    """A list of an attribute, or its tensor where it may be one."""
    given = r.tensor(f"{name}_as_tensor") if r.has(f"{name}_as_tensor") else r.attribute(name)
    return np.asarray([] if given is None else given, dtype).reshape(-1)


def _forest(r: NodeReader, prefix: str, targets: int) -> Forest:
    """The nodes by the attributes nodes_*, the weights by those of ``prefix``."""
    trees, ids = _numbers(r, "nodes_treeids"), _numbers(r, "nodes_nodeids")
    count = len(ids)
    where = {pair: k for k, pair in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    if len(where) < count or not count:
        raise r.fail("a tree has two nodes of one number" if count else "there are no nodes")
    modes = list(r.attribute("nodes_modes") or [])
    _numbers(r, "nodes_hitrates", np.float64)  # how often nodes were visited in training
    columns = {
        name: _numbers(r, f"nodes_{name}", np.float64 if name == "values" else np.int64)
        for name in ("featureids", "values", "truenodeids", "falsenodeids")
    }
    missing = _numbers(r, "nodes_missing_value_tracks_true")
    lengths = {name: len(column) for name, column in columns.items()} | {"modes": len(modes)}
    for name, length in lengths.items():
        if length != count:
            raise r.fail(f"there are {count} nodes, and {length} of nodes_{name}")
    unknown = [m for m in modes if m not in TESTS]
    if unknown or len(missing) not in (0, count) or columns["featureids"].min() < 0:
        raise r.fail(f"nodes of mode {unknown[0]}" if unknown else "the nodes are malformed")
    tests = np.array([TESTS[m] for m in modes])
    if len(missing):
        tests = np.where(missing != 0, tests | UNORDERED, tests)
    leaf = np.array([m == "LEAF" for m in modes])
    first, second = np.arange(count), np.arange(count)
    for k in np.flatnonzero(~leaf).tolist():
        for out, name in ((first, "truenodeids"), (second, "falsenodeids")):
            child = where.get((int(trees[k]), int(columns[name][k])))
            if child is None or child == k:
                raise r.fail(f"node {ids[k]} of tree {trees[k]} leads nowhere")
            out[k] = child
    led = np.zeros(count, bool)
    led[first[~leaf]] = led[second[~leaf]] = True
    roots = np.flatnonzero(~led)
    if len(np.unique(trees[roots])) != len(roots) or len(roots) != len(np.unique(trees)):
        raise r.fail("a tree has no root, or more than one")
    weights = _weights(r, prefix, where, (count, targets))
    return Forest(columns["featureids"], columns["values"], tests, first, second, roots, weights)


def _weights(
    r: NodeReader, prefix: str, where: dict[tuple[int, int], int], shape: tuple[int, int]
) -> Array:
    """The table of weights; several of one node and target add up."""
    trees, ids, targets = (_numbers(r, f"{prefix}_{x}") for x in ("treeids", "nodeids", "ids"))
    weights = _numbers(r, f"{prefix}_weights", np.float64)
    if not len(trees) == len(ids) == len(targets) == len(weights):
        raise r.fail(f"the lists {prefix}_* differ in length")
    out = np.full(shape, np.nan)
    for tree, node, target, weight in zip(trees, ids, targets, weights, strict=True):
        at = where.get((int(tree), int(node)))
        if at is None or not 0 <= target < shape[1]:
            raise r.fail(f"there is a weight of node {node} of tree {tree} for {target}")
        out[at, target] = weight + (0 if np.isnan(out[at, target]) else out[at, target])
    return out


def _based(r: NodeReader, scores: Value, count: int) -> Value:
    """The scores with the base values, one or one for each of ``count``."""
    if r.op_type == "TreeEnsemble":
        return scores  # has none
    base = _numbers(r, "base_values", np.float64)
    if not len(base):
        return scores
    if len(base) not in (1, count):
        raise r.fail(f"{len(base)} base values for {count} targets")
    known = r.constant(base.astype(scores.type.dtype.numpy), "base")
    return step(r, Add(), scores, known)


@handles("TreeEnsembleRegressor", 1, 3, 5, domain=ML)
def tree_ensemble_regressor(r: NodeReader) -> Value:
    """Tensors of doubles since version 3; deprecated in 5."""
    x = _input(r)
    targets = int(r.attribute("n_targets", 1))
    how = r.attribute("aggregate_function", "SUM")
    if how not in _AGGREGATES or targets < 1:
        raise r.fail(f"the {how} of {targets} targets", hint="one of " + " ".join(_AGGREGATES))
    scores = _aggregated(r, x, _forest(r, "target", targets), how)
    return r.one(Cast(F32), transformed(r, scores, transform_of(r)))


@handles("TreeEnsembleClassifier", 1, 3, 5, domain=ML)
def tree_ensemble_classifier(r: NodeReader) -> list[Value]:
    """Tensors of doubles since version 3; deprecated in 5."""
    x = _input(r)
    labels, count = labels_of(r, "classlabels_int64s", "classlabels_strings")
    if count < 2:
        raise r.fail(f"there are {count} classes")
    forest = _forest(r, "class", count)
    told = np.flatnonzero((~np.isnan(forest.weights)).any(0))
    transform = transform_of(r)
    if count == 2 and len(told) == 1:
        return _two_classes(r, x, forest, int(told[0]), labels, transform)
    scores = _aggregated(r, x, forest, "SUM")
    return [best(r, scores, labels), step(r, Cast(F32), transformed(r, scores, transform))]


def _two_classes(
    r: NodeReader,
    x: Value,
    forest: Forest,
    told: int,
    labels: Labels,
    transform: str,
) -> list[Value]:
    """Trees that tell one score p: of positive weights a probability, beside which stands 1 - p.

    That of the second class stands beside 0 instead. So ONNX Runtime has it; ONNX does not say.
    """
    total = _aggregated(r, x, forest, "SUM")
    rows = x.type.shape[0]
    starts = sizes(0, told)
    one = step(r, Slice(starts, (1, 1), (rows, *sizes(1))), total)
    weights = forest.weights[~np.isnan(forest.weights)]
    positive = bool((weights >= 0).all())
    over = step(r, Greater(), one, number(r, 0.5 if positive else 0.0, one))
    place = step(r, Reshape((rows,)), step(r, Cast(I64), over))
    if told == 1:
        scores = transformed(r, total, transform)
    elif positive and transform != "LOGISTIC":
        scores = beside(r, step(r, Sub(), number(r, 1.0, one), one), one)
    else:
        scores = beside(r, step(r, Neg(), one), one)
        if transform == "LOGISTIC":
            scores = transformed(r, scores, transform)
    return [chosen(r, place, labels), step(r, Cast(F32), scores)]


# ------------------------------------------------------------------------------------ version 5


@handles("TreeEnsemble", 5, domain=ML)
def tree_ensemble(r: NodeReader) -> Value:
    """A leaf has one weight for one target."""
    x = r.input(0)
    dtype: DType = x.type.dtype
    if not dtype.is_float or x.type.rank != 2:
        raise r.fail(f"the observations {x!r} are no matrix of floats")
    targets = int(r.attribute("n_targets", 1))
    forest = _flat_forest(r, targets)
    how = int(r.attribute("aggregate_function", 1))
    if not 0 <= how < len(_AGGREGATES):
        raise r.fail(f"aggregate_function {how} does not exist")
    total = _aggregated(r, x, forest, _AGGREGATES[how])
    return r.one(Cast(dtype), transformed(r, total, transform_of(r)))


def _flat_forest(r: NodeReader, targets: int) -> Forest:
    splits, modes = (np.asarray(r.tensor(f"nodes_{k}")).reshape(-1) for k in ("splits", "modes"))
    lists = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    features, *ways = (_numbers(r, f"nodes_{name}") for name in lists)
    r.tensor("nodes_hitrates")
    missing, roots = _numbers(r, "nodes_missing_value_tracks_true"), _numbers(r, "tree_roots")
    leaf_targets = _numbers(r, "leaf_targetids")
    leaf_weights = np.asarray(r.tensor("leaf_weights"), np.float64).reshape(-1)
    count, leaves = len(features), len(leaf_weights)
    if any(len(a) != count for a in (splits, modes, *ways)) or len(missing) not in (0, count):
        raise r.fail("the lists nodes_* differ in length")
    if len(leaf_targets) != leaves or (modes > _MEMBER).any() or not count:
        raise r.fail("the leaves or modes are malformed")
    for index, limit in ((leaf_targets, targets), (roots, count), (features, 1 << 31)):
        if ((index < 0) | (index >= limit)).any():
            raise r.fail("a target, root or feature is out of range")
    children = []
    for child, is_leaf in ((ways[0], ways[2]), (ways[1], ways[3])):
        if ((child < 0) | (child >= np.where(is_leaf != 0, leaves, count))).any():
            raise r.fail("a node leads nowhere")
        children.append(np.where(is_leaf != 0, child + count, child))
    own = np.arange(count, count + leaves)
    nothing = np.zeros(leaves)
    bits = np.array([TESTS[m] for m in _MODES] + [TESTS["BRANCH_EQ"]])
    tests = bits[modes]
    if len(missing):
        tests = np.where(missing != 0, tests | UNORDERED, tests)
    weights = np.full((count + leaves, targets), np.nan)
    weights[own, leaf_targets] = leaf_weights
    forest = Forest(
        np.concatenate([features, nothing]).astype(np.int64),
        np.concatenate([splits.astype(np.float64), nothing]),
        np.concatenate([tests, nothing]).astype(np.int64),
        np.concatenate([children[0], own]),
        np.concatenate([children[1], own]),
        roots,
        weights,
    )
    return _with_members(r, forest, np.flatnonzero(modes == _MEMBER))


def _with_members(r: NodeReader, forest: Forest, nodes: Array) -> Forest:
    """Tests of membership as chains of tests of equality, one for each member."""
    given = r.tensor("membership_values")
    values = np.asarray([] if given is None else given, np.float64).reshape(-1)
    sets = [list(part) for part in np.split(values, np.flatnonzero(np.isnan(values)))]
    members = [[v for v in part if not np.isnan(v)] for part in sets][: len(nodes)]
    if len(members) < len(nodes):
        raise r.fail(f"{len(nodes)} nodes test membership, and there are {len(members)} sets")
    features, splits, tests, first, second = (
        list(a) for a in (forest.features, forest.values, forest.tests, forest.first, forest.second)
    )
    for k, items in zip(nodes.tolist(), members, strict=True):
        if not items:  # nothing is in an empty set
            tests[k] = int(tests[k]) & UNORDERED
            continue
        other, at = second[k], k
        splits[k] = items[0]
        for item in items[1:]:
            second[at] = len(features)
            at = len(features)
            features.append(features[k])
            splits.append(item)
            tests.append(TESTS["BRANCH_EQ"])
            first.append(first[k])
            second.append(other)
        second[at] = other
    weights = np.full((len(features), forest.weights.shape[1]), np.nan)
    weights[: len(forest.weights)] = forest.weights
    return Forest(
        np.array(features),
        np.array(splits),
        np.array(tests),
        np.array(first),
        np.array(second),
        forest.roots,
        weights,
    )
