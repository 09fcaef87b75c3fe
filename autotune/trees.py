"""XGBoost's JSON of a booster, made anew of what is sound in another one.

XGBoost believes what a file says: a child or a feature that is not there crashes the process. Of a
file only the trees are taken, each checked to be one, and the number that they start from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

from planish.compiler.errors import ParseError

ROOT: Final = 2147483647  # what XGBoost calls the parent of a root
LARGEST: Final = 1 << 20  # nodes of a tree, and trees of a booster
NUMBERS: Final = ("split_conditions", "base_weights", "loss_changes", "sum_hessian")
INTEGERS: Final = ("left_children", "right_children", "parents", "split_indices", "default_left")


def checked(member: Any, names: Sequence[str]) -> dict[str, Any]:
    """The same booster for so many features.

    Errors: ParseError if it is none.
    """
    match member:
        case {"version": [*version], "learner": {
            "learner_model_param": {"base_score": str(score)},
            "gradient_booster": {"model": {"trees": [*trees]}},
        }} if len(version) == 3 and 0 < len(trees) < LARGEST:  # fmt: skip
            return _booster([_tree(t, k, len(names)) for k, t in enumerate(trees)], version, score,
                            names)  # fmt: skip
    raise ParseError("it holds no trees")


def _booster(
    trees: list[Any], version: Sequence[Any], score: str, names: Sequence[str]
) -> dict[str, Any]:
    try:
        start = float(score.strip("[]"))
    except ValueError as error:
        raise ParseError(f"{score[:20]} is no number") from error
    if not isfinite(start) or not all(type(v) is int and 0 <= v < 1000 for v in version):
        raise ParseError("its numbers are none")
    text = f"[{start!r}]" if score.startswith("[") else repr(start)
    model = {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": list(range(len(trees) + 1)),
        "tree_info": [0] * len(trees),
        "trees": trees,
    }
    learner = {
        "attributes": {},
        "feature_names": list(names),
        "feature_types": [],
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": text,
            "boost_from_average": "1",
            "num_class": "0",
            "num_feature": str(len(names)),
            "num_target": "1",
        },
        "objective": {"lambdarank_param": {}, "name": "rank:pairwise"},
    }
    return {"learner": learner, "version": list(version)}


def _tree(tree: Any, id: int, features: int) -> dict[str, Any]:
    parts: dict[str, list[Any]] = {}
    for name in (*NUMBERS, *INTEGERS):
        found = tree.get(name) if isinstance(tree, dict) else None
        if not isinstance(found, list) or not 0 < len(found) < LARGEST:
            raise ParseError(f"the tree {id} has no {name}")
        parts[name] = found
    count = len(parts["parents"])
    if any(len(p) != count for p in parts.values()):
        raise ParseError(f"the parts of the tree {id} are not of one length")
    for name in NUMBERS:
        if not all(type(x) in (int, float) and isfinite(x) for x in parts[name]):
            raise ParseError(f"{name} of the tree {id} are no numbers")
    for name in INTEGERS:
        if not all(type(x) is int for x in parts[name]):
            raise ParseError(f"{name} of the tree {id} are no integers")
    _check_shape(parts, id, features)
    nothing: dict[str, Any] = {
        f"categories{part}": [] for part in ("", "_nodes", "_segments", "_sizes")
    }
    param = {
        "num_deleted": "0",
        "num_feature": str(features),
        "num_nodes": str(count),
        "size_leaf_vector": "1",
    }
    return {**parts, **nothing, "id": id, "split_type": [0] * count, "tree_param": param}


def _check_shape(parts: dict[str, list[Any]], id: int, features: int) -> None:
    """Whether it is a tree: every node but the root is the child of its parent, and of no other."""
    left, right, parents = parts["left_children"], parts["right_children"], parts["parents"]
    if parents[0] != ROOT:
        raise ParseError(f"the tree {id} has no root")
    seen, waiting = 0, [0]
    while waiting:
        node = waiting.pop()
        seen += 1
        below = (left[node], right[node])
        if below == (-1, -1):
            continue
        for child in below:
            if not 0 < child < len(parents) or parents[child] != node:
                raise ParseError(f"the tree {id} has no node {child} below {node}")
            waiting.append(child)
        if below[0] == below[1] or seen > len(parents):
            raise ParseError(f"the tree {id} is none")
        if not 0 <= parts["split_indices"][node] < features:
            raise ParseError(f"the tree {id} asks for a feature that there is not")
        if parts["default_left"][node] not in (0, 1):
            raise ParseError(f"the tree {id} has no way at {node}")
    if seen != len(parents):
        raise ParseError(f"the tree {id} has nodes that are nowhere")
