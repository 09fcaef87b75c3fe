"""The passes, as two lists: to learn the compiler, read them.

``PLANISH_DUMP=all`` (or names of passes, separated by commas) prints the program after each;
``PLANISH_CHECK=1`` verifies it after each, as the tests do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .config import CONFIG, Config
from .errors import ParseError
from .graph.attention import compose_attention
from .graph.canonicalize import canonicalize
from .graph.compose import compose
from .graph.cse import eliminate_common
from .graph.dce import eliminate_dead
from .graph.fold import fold_constants
from .graph.ir import Graph
from .graph.layout import channels_last, sink_transposes
from .graph.parts import split_products
from .graph.phases import even_phases
from .graph.scale import fold_scales, put_numbers_behind
from .graph.settled import settle_sizes
from .graph.subgraphs import everywhere
from .graph.verify import verify as verify_graph
from .loop.compact import compact
from .loop.decompose import bind, decompose
from .loop.ir import Function
from .loop.partition import partition
from .loop.tidy import tidy
from .loop.verify import verify as verify_function

T = TypeVar("T", Graph, Function)


@dataclass(frozen=True)
class Pass(Generic[T]):
    """A function from program to program: the same object where it changes nothing."""

    name: str
    run: Callable[[T], T]
    check: Callable[[T], object]
    nested: bool = True  # whether it runs on subgraphs too

    def __call__(self, program: T) -> T:
        """The program after the pass: of a graph, its subgraphs too, the innermost first."""
        if isinstance(program, Graph) and self.nested:
            return everywhere(program, self.run)
        return self.run(program)


GRAPH_PASSES: tuple[Pass[Graph], ...] = (
    # 1. less, and in one form: what follows looks for few shapes of program
    Pass("sizes", settle_sizes, verify_graph, nested=False),  # they decide what is equal
    Pass("dead", eliminate_dead, verify_graph),
    Pass("fold", fold_constants, verify_graph),
    Pass("canonicalize", canonicalize, verify_graph),
    Pass("common", eliminate_common, verify_graph),
    # 2. bigger operators, which become one kernel each
    Pass("compose", compose, verify_graph),
    Pass("scales", fold_scales, verify_graph),
    # 3. channels last inside; transposes meet and cancel
    Pass("channels_last", channels_last, verify_graph),
    Pass("transposes", sink_transposes, verify_graph),
    Pass("phases", even_phases, verify_graph),
    Pass("attention", compose_attention, verify_graph),
    # 4. what the passes before left over
    Pass("parts", split_products, verify_graph),  # slices are next to the products now
    Pass("fold_again", fold_constants, verify_graph),
    Pass("canonicalize_again", canonicalize, verify_graph),
    Pass("scales_again", fold_scales, verify_graph),  # reshapes are out of the way
    Pass("numbers", put_numbers_behind, verify_graph),  # those that went into no weights
    Pass("common_again", eliminate_common, verify_graph),
    Pass("dead_again", eliminate_dead, verify_graph),
)

# After schedules: from blocks to plain statements in loops that hardware runs as they stand.
LOOP_PASSES: tuple[Pass[Function], ...] = (
    Pass("decompose", decompose, verify_function),  # needs blocks with iterators
    Pass("bind", bind, verify_function),  # from here on, only loop variables
    Pass("compact", compact, verify_function),  # needs to see every access as it was scheduled
    Pass(
        "partition", partition, verify_function
    ),  # duplicates code: after everything that reads it
    Pass("tidy", tidy, verify_function),
)


def run(
    program: T,
    passes: Sequence[Pass[T]],
    stop_after: str = "",
    observe: Callable[[str, T], None] | None = None,
) -> T:
    """The program after the passes, or after those up to ``stop_after``.

    Errors: ParseError if ``PLANISH_DUMP`` names none of the compiler's passes.
    """
    wanted = set(CONFIG.dump)
    if wanted:
        _check_names(CONFIG.dump, passes)
    check = CONFIG.check
    for p in passes:
        new = p(program)
        if "all" in wanted or p.name in wanted:
            text = "(unchanged)" if new is program else repr(new)
            sys.stderr.write(f"# after {p.name}\n{text}\n\n")
        if check:
            p.check(new)
        program = new
        if observe is not None:
            observe(p.name, program)
        if p.name == stop_after:
            break
    return program


def _check_names(names: Sequence[str], passes: Sequence[Pass[T]]) -> None:
    lists: tuple[Sequence[Pass[Any]], ...] = (GRAPH_PASSES, LOOP_PASSES, passes)
    known = list(dict.fromkeys(p.name for some in lists for p in some))
    for name in names:
        if name != "all" and name not in known:
            raise ParseError(
                f"{Config.dump.name} names {name!r}, which is no pass",
                hint=f"all, or some of: {', '.join(known)}",
            )
