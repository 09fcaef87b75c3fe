"""Operators of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_harness import by_reference, check, expected, model_of

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32, ints

ML = "ai.onnx.ml"


def model(
    op_type: str,
    inputs: Mapping[str, Array],
    outputs: str = "y",
    version: int = 1,
    symbolic: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    made = helper.make_node(op_type, list(inputs), outputs.split(), domain=ML, **attributes)
    return model_of(made, inputs, domains={ML: version}, symbolic=symbolic)


def compared(
    op_type: str,
    inputs: Mapping[str, Array],
    outputs: str = "y",
    version: int = 1,
    symbolic: bool = True,
    tolerance: float = 1e-5,
    oracle: Any = expected,
    **attributes: Any,
) -> None:
    want = oracle(model(op_type, inputs, outputs, version, **attributes), inputs)
    for kind in (False, True) if symbolic else (False,):
        made = model(op_type, inputs, outputs, version, kind, **attributes)
        check(made, inputs, want=want, tolerance=tolerance)


X = f32(6, 4)
KINDS = ("float32", "float64", "int64", "int32")


@pytest.mark.parametrize("kind", KINDS)
def test_binarizer(kind: str) -> None:
    compared("Binarizer", {"x": X.astype(kind)}, threshold=0.75)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 4])
def test_scaler(kind: str, size: int) -> None:
    offset, scale = f32(size).tolist(), f32(size, low=0.5).tolist()
    compared("Scaler", {"x": X.astype(kind)}, offset=offset, scale=scale)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("x", [X, X[0], -abs(X), np.zeros((2, 3), "float32")])
def test_normalizer(norm: str, x: Array) -> None:
    compared("Normalizer", {"x": x}, norm=norm)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_of_nan(norm: str) -> None:
    x = np.array([[1.0, np.nan], [0.0, 0.0], [0.0, np.inf]], np.float32)
    want = np.array([[np.nan, np.nan], [0.0, 0.0], [0.0, np.nan]], np.float32)
    check(model("Normalizer", {"x": x}, norm=norm), {"x": x}, want=[want])


def test_imputer() -> None:
    x = X.copy()
    x[1, 2] = x[3, 0] = np.nan
    compared("Imputer", {"x": x}, imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
             replaced_value_float=float("nan"))  # fmt: skip
    compared("Imputer", {"x": x[1]}, imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
             replaced_value_float=float("nan"))  # fmt: skip
    for shape in ((3, 4), (2, 3, 4)):
        x = ints(*shape, low=0, high=3)
        compared("Imputer", {"x": x}, imputed_value_int64s=[9], replaced_value_int64=1)


@pytest.mark.parametrize("x", [X, X[0], f32(2, 3, 4)])
def test_array_feature_extractor(x: Array) -> None:
    compared("ArrayFeatureExtractor", {"x": x, "i": np.array([[2, 0, 2]])})


def test_feature_vectorizer() -> None:
    inputs = {"a": X, "b": f32(6, 2), "c": f32(6, 3)}
    compared("FeatureVectorizer", inputs, symbolic=False, inputdimensions=[4, 2, 3])


@pytest.mark.parametrize("kind", ["int64", "float32"])
def test_one_hot_encoder(kind: str) -> None:
    compared("OneHotEncoder", {"x": ints(3, 2, low=0, high=6).astype(kind)},
             cats_int64s=[1, 4, 2])  # fmt: skip
    compared("OneHotEncoder", {"x": ints(3, 2, low=0, high=6).astype(kind)},
             cats_int64s=[1, 4, 1, 2, 4])  # fmt: skip


def test_label_encoder() -> None:
    x = ints(3, 4, low=0, high=5)
    compared("LabelEncoder", {"x": x}, version=2, keys_int64s=[1, 3, 2],
             values_floats=[0.5, 1.5, 2.5], default_float=-3.0)  # fmt: skip
    y = np.array([np.nan, 1.5, 2.5], np.float32)
    made = model("LabelEncoder", {"x": y}, version=4, keys_floats=[1.5, float("nan")],
                 values_int64s=[5, 6])  # fmt: skip
    check(made, {"x": y}, want=[np.array([6, 5, -1])])
    tensors = {
        "keys_tensor": numpy_helper.from_array(np.array([1, 3], np.int16)),
        "values_tensor": numpy_helper.from_array(np.array([10, 30], np.int16)),
        "default_tensor": numpy_helper.from_array(np.array([7], np.int16)),
    }
    made = model("LabelEncoder", {"x": x.astype("int16")}, version=4, **tensors)
    want = np.select([x == 1, x == 3], [10, 30], 7).astype("int16")
    check(made, {"x": x.astype("int16")}, want=[want])


TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


@pytest.mark.parametrize("kind", ["float32", "int64"])
@pytest.mark.parametrize("intercepts", [False, True])
def test_linear_regressor(kind: str, intercepts: bool) -> None:
    more = {"intercepts": f32(3).tolist()} if intercepts else {}
    x = X.astype(kind)
    made = model("LinearRegressor", {"x": x}, coefficients=f32(12).tolist(), targets=3, **more)
    want = x.astype("float32") @ f32(12).reshape(3, 4).T + (f32(3) if intercepts else 0)
    check(made, {"x": x}, want=[want])


@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (1, 2), (2, 2), (3, 3)])
def test_linear_classifier(transform: str, rows: int, classes: int) -> None:
    """Of one row, ONNX Runtime has 1 less the score beside it, which is no transform of it."""
    attributes = {
        "post_transform": transform, "coefficients": f32(4 * rows).tolist(),
        "intercepts": f32(rows).tolist(), "classlabels_ints": [7, 3, 5][:classes],
    }  # fmt: skip
    made = model("LinearClassifier", {"x": X}, "label scores", **attributes)
    check(made, {"x": X}, want=(expected if rows > 1 else by_reference)(made, {"x": X}))


KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    compared("SVMRegressor", {"x": X}, kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0],
             n_supports=5, support_vectors=f32(20).tolist(), coefficients=f32(5).tolist(),
             rho=[0.25], one_class=one_class)  # fmt: skip


def test_linear_svm_regressor() -> None:
    compared("SVMRegressor", {"x": X}, coefficients=f32(4).tolist(), rho=[0.25],
             oracle=by_reference, kernel_type="LINEAR", n_supports=0)  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3])
def test_svm_classifier(kernel: str, classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    compared("SVMClassifier", {"x": X}, "label scores", kernel_type=kernel,
             kernel_params=[0.3, 0.5, 3.0], vectors_per_class=[2, 3, 2][:classes],
             support_vectors=f32(4 * (5 if classes == 2 else 7)).tolist(),
             coefficients=f32((classes - 1) * (5 if classes == 2 else 7)).tolist(),
             rho=f32(pairs).tolist(), classlabels_ints=[7, 3, 5][:classes])  # fmt: skip


def test_probabilities_of_two_classes() -> None:
    """ONNX Runtime works them out step by step, and stops early."""
    compared("SVMClassifier", {"x": X}, "label scores", kernel_type="RBF",
             kernel_params=[0.3, 0.0, 0.0], vectors_per_class=[2, 3], prob_a=[-1.5],
             prob_b=[0.1], support_vectors=f32(20).tolist(), coefficients=f32(5).tolist(),
             rho=[0.1], classlabels_ints=[0, 1], tolerance=2e-3)  # fmt: skip


def test_linear_svm_classifier() -> None:
    compared("SVMClassifier", {"x": X}, "label scores", coefficients=f32(8).tolist(),
             rho=[0.25], classlabels_ints=[4, 5], oracle=by_reference)  # fmt: skip


# ------------------------------------------------------------------------------------- trees

# Two trees of depths 3 and 1: node, its mode, feature, value, and the nodes behind it.
NODES = [
    (0, 0, "BRANCH_LEQ", 0, 0.5, 1, 2), (0, 1, "BRANCH_GT", 1, -0.3, 3, 4),
    (0, 2, "LEAF", 0, 0, 0, 0), (0, 3, "LEAF", 0, 0, 0, 0), (0, 4, "BRANCH_LT", 3, 0.9, 5, 6),
    (0, 5, "LEAF", 0, 0, 0, 0), (0, 6, "LEAF", 0, 0, 0, 0),
    (1, 0, "BRANCH_GTE", 2, 0.1, 1, 2), (1, 1, "LEAF", 0, 0, 0, 0), (1, 2, "LEAF", 0, 0, 0, 0),
]  # fmt: skip
LEAVES = [(tree, node) for tree, node, mode, *_ in NODES if mode == "LEAF"]


def nodes(missing: bool = False) -> dict[str, Any]:
    columns = list(zip(*NODES, strict=True))
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    out: dict[str, Any] = {f"nodes_{n}": list(c) for n, c in zip(names, columns, strict=True)}
    out["nodes_values"] = [float(v) for v in out["nodes_values"]]
    if missing:
        out["nodes_missing_value_tracks_true"] = [1] * len(NODES)
    return out


def weights(prefix: str, targets: list[int], low: float = -3.0) -> dict[str, Any]:
    """A weight for each leaf and target."""
    every = [(*leaf, t) for leaf in LEAVES for t in targets]
    values = f32(len(every), low=low).tolist()
    columns = [list(c) for c in zip(*every, strict=True)]
    names = ("treeids", "nodeids", "ids")
    return {f"{prefix}_{n}": c for n, c in zip(names, columns, strict=True)} | {
        f"{prefix}_weights": values
    }


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [[0], [0, 1]])
@pytest.mark.parametrize("missing", [False, True])
def test_tree_ensemble_regressor(how: str, targets: list[int], missing: bool) -> None:
    x = X.copy()
    x[2] = np.nan
    base = {"base_values": [0.5, -1.0]} if len(targets) > 1 else {}
    compared("TreeEnsembleRegressor", {"x": x}, n_targets=2, aggregate_function=how,
             **base, **nodes(missing), **weights("target", targets))  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize("classes", [[0, 1, 2], [0], [1]])
@pytest.mark.parametrize("low", [-3.0, 0.0])
def test_tree_ensemble_classifier(transform: str, classes: list[int], low: float) -> None:
    labels = [7, 3, 5] if len(classes) == 3 else [7, 3]
    compared("TreeEnsembleClassifier", {"x": X}, "label scores", classlabels_int64s=labels,
             post_transform=transform, **nodes(), **weights("class", classes, low))  # fmt: skip


def test_tree_ensemble_of_doubles() -> None:
    given = nodes()
    given["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(given.pop("nodes_values")))
    told = weights("target", [0])
    told["target_weights_as_tensor"] = numpy_helper.from_array(np.array(told.pop("target_weights")))
    compared("TreeEnsembleRegressor", {"x": X.astype("float64")}, version=3, n_targets=1, **given,
             **told)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [9] + [0] * 9}, "leads nowhere"),
        ({"nodes_modes": ["LEAF"]}, "1 of nodes_modes"),
        ({"nodes_modes": ["SOME"] + ["LEAF"] * 9}, "mode SOME"),
        ({"nodes_featureids": [4] * 10}, "feature 4 is tested"),
        ({"target_ids": [5] * 6}, "for 5"),
        ({"n_targets": 0}, "of 0 targets"),
        ({"aggregate_function": "MEAN"}, "the MEAN"),
    ],
)
def test_malformed_trees(changes: dict[str, Any], message: str) -> None:
    given = {"n_targets": 1, **nodes(), **weights("target", [0]), **changes}
    with pytest.raises(PlanishError, match=message):
        import_model(model("TreeEnsembleRegressor", {"x": X}, **given))


@pytest.mark.parametrize("classes", [[0, 1, 2], [0], [1]])
def test_names_of_classes(classes: list[int]) -> None:
    names = ["a", "é", ""] if len(classes) == 3 else ["a", "é"]
    compared("TreeEnsembleClassifier", {"x": X}, "label scores", classlabels_strings=names,
             **nodes(), **weights("class", classes))  # fmt: skip


def test_one_class_with_a_name() -> None:
    given = {"coefficients": [1.0, 2.0, 3.0, 4.0], "classlabels_strings": ["a"]}
    with pytest.raises(PlanishError, match="nothing says what the other one is"):
        import_model(model("LinearClassifier", {"x": X}, "label scores", **given))


WORDS = np.array([["a", "b", "z"], ["", "é", "a"]], object)
KEYS = ["b", "a", "é", "b", ""]


@pytest.mark.parametrize("version", [2, 4])
def test_label_encoder_of_strings(version: int) -> None:
    numbers, reals = [5, 4, 3, 2, 1], [0.5, 1.5, 2.5, 3.5, 4.5]
    encode = "LabelEncoder"
    # ONNX Runtime takes the first of a repeated key in version 4 too, where ONNX says the last.
    keys = KEYS if version == 2 else ["q", *KEYS[1:]]
    x = {"x": WORDS}
    compared(encode, x, version=version, keys_strings=keys, values_int64s=numbers)
    compared(encode, x, version=version, keys_strings=keys, values_floats=reals, default_float=9.0)
    compared(encode, x, version=version, keys_strings=keys, values_strings=KEYS[::-1])
    back = {"x": np.array([[1, 7], [5, 3]])}
    text = {"keys_int64s": numbers, "values_strings": KEYS}
    compared(encode, back, version=version, **text)
    compared(encode, back, version=version, default_string="none of them", **text)
    floats = {"x": np.array([0.5, np.nan, 4.5], np.float32)}
    compared(encode, floats, version=version, keys_floats=reals, values_strings=KEYS)


def test_label_encoder_by_classes() -> None:
    classes = {"classes_strings": ["b", "", "é"], "default_int64": 8, "default_string": "?"}
    want = [np.array([[8, 0, 8], [1, 2, 8]])]
    check(model("LabelEncoder", {"x": WORDS}, **classes), {"x": WORDS}, want=want)
    places = {"x": np.array([2, 0, 3, -1])}
    want = [np.array(["é", "b", "?", "?"], object)]
    check(model("LabelEncoder", places, **classes), places, want=want)


def test_category_mapper() -> None:
    cats = {"cats_strings": KEYS[:3], "cats_int64s": [7, 8, 9]}
    compared("CategoryMapper", {"x": WORDS}, default_int64=3, **cats)
    compared("CategoryMapper", {"x": np.array([[7, 9, 10]])}, default_string="é!", **cats)


def test_one_hot_of_strings() -> None:
    compared("OneHotEncoder", {"x": WORDS}, cats_strings=["a", "", "c"])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tfidf_of_strings(mode: str) -> None:
    made = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=2,
        max_skip_count=1, pool_strings=["a", "é", "", "a", "é", "b", "z"], ngram_counts=[0, 3],
        ngram_indexes=[0, 1, 2, 4, 3], weights=[1.0, 2.0, 0.5, 4.0, 8.0],
    )  # fmt: skip
    x = np.array([["a", "é", "a", "b"], ["b", "z", "", "é"]], object)
    check(made, {"x": x})


def test_repeated_keys() -> None:
    """The last counts; in version 2 of LabelEncoder, where ONNX does not say, the first."""
    x, y = {"x": np.array(["a", "b", "c"], object)}, {"x": np.array([1, 2, 3])}
    pairs = {"keys_strings": ["a", "b", "a"], "values_int64s": [4, 5, 6]}
    compared("LabelEncoder", x, version=2, **pairs)
    made = model("LabelEncoder", x, version=4, **pairs)
    check(made, x, want=[np.array([6, 5, -1])])
    check(model("LabelEncoder", x, classes_strings=["a", "b", "a"]), x, want=[np.array([2, 1, -1])])
    compared("CategoryMapper", x, cats_strings=["a", "b", "a"], cats_int64s=[4, 5, 6])
    compared("CategoryMapper", y, cats_strings=["a", "b", "c"], cats_int64s=[1, 2, 1])


def test_malformed_categories() -> None:
    for op, attributes, message in (
        ("CategoryMapper", {"cats_strings": ["a"], "cats_int64s": [1, 2]}, "1 strings and 2"),
        ("LabelEncoder", {"keys_strings": [b"\xff"], "values_int64s": [1]}, "is not UTF-8"),
        ("OneHotEncoder", {"cats_int64s": [1]}, "there are no categories"),
    ):
        made = model(op, {"x": WORDS}, version=2 if op == "LabelEncoder" else 1, **attributes)
        with pytest.raises(PlanishError, match=message):
            import_model(made)
