"""Register buffers: their live elements, as runs that do not overlap.

A run is a scalar or a vector of neighbours. A buffer whose elements cannot be told apart when code
is made (an index that is not constant, runs that differ between two ways into a block) is *unfit*:
its name is noted, and the function is made again with the buffer in memory.
"""

from __future__ import annotations

from typing import Final, NoReturn, TypeAlias

from planish.compiler.dtypes import DType
from planish.compiler.errors import CodegenError

from .operations import Operations
from .values import Val, lanes_type, scalar_type

Runs: TypeAlias = dict[tuple[str, int], Val]

MOST_LANES: Final = 256


class Registers:
    """See the module's text. ``live`` is replaced where the flow of control parts and joins."""

    def __init__(self, operations: Operations, unfit: list[str]) -> None:
        self.o = operations
        self.unfit = unfit
        self.live: Runs = {}

    def refuse(self, name: str, why: str, node: str | None = None) -> NoReturn:
        """Give the buffer up as one in registers."""
        self.unfit.append(name)
        raise CodegenError(f"{name} is kept in registers, but {why}", op="llvm", node=node)

    # ------------------------------------------------------------------------------ elements

    def read(self, name: str, dtype: DType, at: int, stride: int, lanes: int) -> Val:
        """``lanes`` elements (0: one) from ``at`` on, ``stride`` apart."""
        found = self.live.get((name, at))
        if found is not None and found.lanes == lanes and stride < 2:
            return found
        if not lanes:
            return self._element(name, dtype, at)
        t = lanes_type(scalar_type(dtype), lanes)
        out = "poison"
        for lane in range(lanes):
            v = self._element(name, dtype, at + stride * lane)
            out = self.o.b.emit(f"insertelement {t} {out}, {v.typed}, i64 {lane}")
        return Val(out, dtype, lanes)

    def _element(self, name: str, dtype: DType, at: int) -> Val:
        for start in range(at, max(-1, at - MOST_LANES), -1):
            found = self.live.get((name, start))
            if found is None:
                continue
            if start + max(1, found.lanes) <= at:
                break
            if not found.lanes:
                return found
            return Val(self.o.b.emit(f"extractelement {found.typed}, i64 {at - start}"), dtype)
        self.refuse(name, "an element is read before it is written", f"{name}[{at}]")

    def held(self, name: str, at: int, lanes: int) -> int:
        """How many of ``lanes`` elements from ``at`` on have been written."""
        if (found := self.live.get((name, at))) is not None and found.lanes == lanes:
            return lanes
        have: set[int] = set()
        for (owner, start), v in self.live.items():
            if owner == name:
                have.update(range(start, start + max(1, v.lanes)))
        return len(have.intersection(range(at, at + lanes)))

    def write(self, name: str, at: int, v: Val) -> None:
        """Set the elements from ``at`` on."""
        old = self.live.get((name, at))
        if old is None or old.lanes != v.lanes:
            self._make_room(name, at, at + max(1, v.lanes))
        self.live[name, at] = v

    def _make_room(self, name: str, first: int, end: int) -> None:
        """Take runs out that overlap [first, end); what is left of them become elements."""
        for (owner, start), v in list(self.live.items()):
            stop = start + max(1, v.lanes)
            if owner != name or stop <= first or start >= end:
                continue
            del self.live[owner, start]
            for k in range(start, stop):
                if not first <= k < end:
                    text = self.o.b.emit(f"extractelement {v.typed}, i64 {k - start}")
                    self.live[owner, k] = Val(text, v.dtype)

    # -------------------------------------------------------------------------- control flow

    def around(self, stored: set[str]) -> Runs:
        """What a loop carries that stores to these buffers."""
        return {k: v for k, v in self.live.items() if k[0] in stored}

    def check_carried(self, carried: Runs) -> Runs:
        """The values at the end of a loop of what it carries."""
        ends: Runs = {}
        for k, v in carried.items():
            last = self.live.get(k)
            if last is None or last.lanes != v.lanes:
                self.refuse(k[0], "it changes its form in a loop")
            ends[k] = last
        return ends

    def merge(self, left: Runs, from_left: str, right: Runs, from_right: str) -> Runs:
        """What is live where two blocks join.

        What one side has not written is not read afterwards, or only under the same condition.
        """
        out: Runs = {}
        for k in dict.fromkeys((*left, *right)):
            v, w = left.get(k), right.get(k)
            if v is not None and v == w:
                out[k] = v
                continue
            known = v if v is not None else w
            assert known is not None
            if v is not None and w is not None and v.lanes != w.lanes:
                self.refuse(k[0], "it has different forms where branches join")
            a = "poison" if v is None else v.text
            b = "poison" if w is None else w.text
            text = self.o.b.emit(f"phi {known.type} [{a}, %{from_left}], [{b}, %{from_right}]")
            out[k] = Val(text, known.dtype, known.lanes)
        if left.keys() != right.keys():
            self._check_apart(out)
        return out

    def _check_apart(self, runs: Runs) -> None:
        last: dict[str, int] = {}
        for (name, at), v in sorted(runs.items(), key=lambda r: r[0]):
            if at < last.get(name, 0):
                self.refuse(name, "it has different forms where branches join")
            last[name] = at + max(1, v.lanes)
