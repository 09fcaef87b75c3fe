"""Equal structure is the same object, and nothing else is."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import pytest

from planish.compiler.dtypes import BOOL, F32, F64, I32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.interned import Interned
from planish.compiler.expr.nodes import Add, Call, Cast, Const, Load, Min, Select, Var
from planish.compiler.expr.text import parse

DIFFERENT = [
    (Const(0.0, F64), Const(-0.0, F64)),
    (Const(1, I64), Const(True, BOOL)),
    (Const(1, I64), Const(1.0, F64)),
    (Const(1, I64), Const(1, I32)),
    (Const(1.0, F32), Const(1.0, F64)),
    (Var("x"), Var("x", F32)),
    (Add(Var("i"), Var("j")), Add(Var("j"), Var("i"))),
    (Add(Var("i"), Var("j")), Min(Var("i"), Var("j"))),
    (Load("x", (Const(1),), F32), Load("x", (Const(1, I32),), F32)),
    (Call("f", (Const(0.0, F64),), F64), Call("f", (Const(-0.0, F64),), F64)),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT, ids=str)
def test_different(a, b):
    assert a is not b
    assert pickle.loads(pickle.dumps((a, b))) == (a, b)


def test_same():
    assert Const(float("nan"), F64) is Const(-float("nan"), F64) is Const(float("nan"), F64)
    assert Const(3) is Const(3, I64)
    assert Var("i") + 1 is Add(Var("i"), Const(1))
    assert Load("x", (Var("i"),), F32) is Load("x", (Var("i"),), F32)


def test_pickle_and_copy_give_the_same_object():
    e = n.select(Var("i") < 3, Cast(Var("i"), F32), Load("x", (Var("i"),), F32))
    assert pickle.loads(pickle.dumps(e)) is e
    assert copy.copy(e) is e
    assert copy.deepcopy([e])[0] is e
    assert pickle.loads(pickle.dumps(e)).dtype is F32


def test_nodes_do_not_change():
    with pytest.raises(AttributeError):
        Var("i").name = "j"


def test_dead_nodes_are_forgotten():
    def alive() -> bool:  # of `_live` itself pytest would print every node if the test failed
        return (Var, "only_here", I64) in Interned._live

    e = Var("only_here") * 17 + 4
    assert alive()
    del e
    gc.collect()
    assert not alive()


def test_threads_share_nodes():
    found: list[list[object]] = []
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        found.append([Var(f"thread_{i}") * (i + 2) // 3 for i in range(2000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4
    for same in zip(*found, strict=True):
        assert all(e is same[0] for e in same)


def test_a_deep_tree_dies_in_peace():
    e, condition = Var("i"), parse("i < 3")
    for k in range(50_000):
        e = Select(condition, e, Const(k))
    assert e.dtype is I64
    del e
    gc.collect()
