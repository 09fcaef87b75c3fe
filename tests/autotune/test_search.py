"""The search for a task's best schedule."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from planish.autotune.cost import CostModel
from planish.autotune.search import Search, rule_of
from planish.schedules.choices import Choices
from planish.schedules.space import Space

from .some import matmul_task


def search_of(estimates: bool) -> Search:
    task = matmul_task(64, 64, 64, threads=2)
    return Search(task, replace(task.space, estimates=estimates), Random(0))


def test_each_rule_is_tried_first() -> None:
    search = search_of(estimates=False)
    rules = search.space.rules()
    assert rules[0] == rule_of(search.start) and len(rules) > 1
    search.told(search.start, 1e-3)
    proposed = search.propose(8, CostModel())
    assert len(proposed) == 8
    assert {rule_of(p) for p in proposed} == set(rules)
    for k, p in enumerate(proposed):
        search.told(p, 1e-3 / (k + 1))
    again = search.propose(8, CostModel())
    assert not {p.schedule.trace for p in again} & {p.schedule.trace for p in proposed}


def test_what_is_good_for_others_is_tried_instead() -> None:
    search = search_of(estimates=False)
    search.told(search.start, 1e-3)
    lent = search.space.random(Random(1), "contraction")
    proposed = search.propose(4, CostModel(), [lent.decisions])
    assert lent.schedule.trace in {p.schedule.trace for p in proposed}


def test_a_rule_that_turned_out_badly_is_not_ranked_first() -> None:
    """The model may like it as it will: this task's own points count more."""
    search = search_of(estimates=True)
    rules = ("contraction", "general")
    points = {rule: [search.space.random(Random(k), rule) for k in range(6)] for rule in rules}
    good, bad = points["general"], points["contraction"]
    for k in range(3):
        search.told(good[k], 1e-4 * (1 + 0.01 * k))
        search.told(bad[k], 7e-4 * (1 + 0.01 * k))
    ranked = search._ranked([*good[3:], *bad[3:]], CostModel())
    assert {rule_of(p) for p in ranked[:3]} == {"general"}


def test_the_most_similar_option_is_taken() -> None:
    choices = Choices({"tiles": 14, "tile": (7, 2, 8), "how": "rows", "steps": 0})
    assert choices.pick("tiles", (4, 6, 12, 24), 4) == 12
    assert choices.pick("tile", ((1, 1, 4), (6, 2, 8), (8, 4, 16)), (1, 1, 4)) == (6, 2, 8)
    assert choices.pick("how", ("tiles", "panels"), "panels") == "panels"
    assert choices.pick("steps", (1, 2, 4), 4) == 1
    assert choices.pick("tile", ((4, 2), (8, 2)), (4, 2)) == (4, 2)


def test_rules_of_a_space() -> None:
    task = matmul_task()
    space: Space = task.space
    assert set(space.rules()) == set(space.default().options["rule"])
    assert all(rule_of(space.random(Random(0), rule)) == rule for rule in space.rules())
    assert np.isfinite(Search(task, space, Random(0)).least_cycles)
