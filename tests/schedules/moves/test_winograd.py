"""Winograd's tiles: what is refused, and that they are right, with weights in any order."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.graph.prepack import formed
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify
from planish.schedules.moves import buffers as B
from planish.schedules.moves import constants as C
from planish.schedules.moves.winograd import winograd
from planish.schedules.schedule import Schedule, replay

from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("winograd"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


# Rows and columns that tiles do not fill; the weights in another order, and first in the product.
CONVOLUTION = """\
def f(x: f32[2, 7, 11, 3], w: f32[5, 3, 3, 3], *, y: f32[2, 5, 9, 5]):
    for b in serial(2):
        for i in serial(5):
            for j in serial(9):
                for o in serial(5):
                    for p in serial(3):
                        for q in serial(3):
                            for c in serial(3):
                                with block("y", b=spatial(2, b), i=spatial(5, i), j=spatial(9, j),
                                           o=spatial(5, o), p=reduce(3, p), q=reduce(3, q),
                                           c=reduce(3, c), init=f32(0.0)):
                                    y[b, i, j, o] += w[o, p, q, c] * x[b, i + p, j + q, c]
"""


@pytest.mark.parametrize("m", [2, 4])
def test_tiles_and_forms_of_weights(m: int):
    func, rng = parse(CONVOLUTION), np.random.default_rng(m)
    x = rng.standard_normal((2, 7, 11, 3)).astype(np.float32)
    w = rng.standard_normal((5, 3, 3, 3)).astype(np.float32)
    (wanted,) = interpret(func, [x, w])
    s = winograd(Schedule(func), "y", m)
    verify(s.func)
    (found,) = interpret(s.func, [x, w])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    s = C.precompute(s, "y_u")
    (same,) = interpret(verify(s.func), [x, formed(w, s.forms()[1])])
    np.testing.assert_array_equal(same, found)
    n = m + 2
    s = B.layout(s, "w", ("d3 // 4", "d0", "d1", "d2", "d3 % 4"), (2, n, n, 3, 4))
    assert list(s.forms()) == [1] and len(s.forms()[1]) == 2
    (same,) = interpret(verify(s.func), [x, formed(w, s.forms()[1])])
    np.testing.assert_array_equal(same, found)
    again = replay(func, s.trace)
    assert show(again.func) == show(s.func)
    assert again.forms() == s.forms()
