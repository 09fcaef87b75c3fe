"""Integer arithmetic of entry points: sizes, offsets and conditions over symbols.

As in Python, except that a division by zero, or one whose quotient does not fit, gives zero, since
a trap would take the process down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, walk

_SIMPLE: Final[dict[type[Expr], str]] = {
    n.Add: "add i64", n.Sub: "sub i64", n.Mul: "mul i64",
    n.And: "and i1", n.Or: "or i1",
    n.Lt: "icmp slt i64", n.Le: "icmp sle i64",
}  # fmt: skip
_INTRINSICS: Final[dict[type[Expr], str]] = {n.Min: "smin", n.Max: "smax"}

DECLARATIONS: Final = (
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare i64 @llvm.smax.i64(i64, i64)",
    *(
        f"declare {{i64, i1}} @llvm.s{operation}.with.overflow.i64(i64, i64)"
        for operation in ("add", "sub", "mul")
    ),
)


class ScalarCode:
    """Straight-line LLVM code for integers over symbols, which are words of ``%slots``.

    If ``checked``, ``overflows`` are the names of bits that say whether a number was too large.
    """

    def __init__(self, symbols: Mapping[Var, int], checked: bool = False) -> None:
        self.symbols, self.checked = symbols, checked
        self.lines: list[str] = []
        self.overflows: list[str] = []
        self._overflow_of: dict[Expr, str] = {}
        self._values: dict[Expr, str] = {}
        self._slots: dict[int, str] = {}
        self._count = 0

    def emit(self, operation: str) -> str:
        """A new name for what ``operation`` gives."""
        self._count += 1
        self.lines.append(f"%v{self._count} = {operation}")
        return f"%v{self._count}"

    def word(self, word: int) -> str:
        """The address of a word of the slots."""
        return self.emit(f"getelementptr i8, ptr %slots, i64 {8 * word}")

    def slot(self, word: int, type: str) -> str:
        """What a word of the slots holds."""
        if word not in self._slots:
            self._slots[word] = self.emit(f"load {type}, ptr {self.word(word)}, align 8")
        return self._slots[word]

    def exact(self, operation: str, x: str, y: str) -> str:
        """``add``, ``sub`` or ``mul`` of two numbers; if it does not fit, a bit more says so."""
        pair = self.emit(f"call {{i64, i1}} @llvm.s{operation}.with.overflow.i64(i64 {x}, i64 {y})")
        self.overflows.append(self.emit(f"extractvalue {{i64, i1}} {pair}, 1"))
        return self.emit(f"extractvalue {{i64, i1}} {pair}, 0")

    def value(self, root: Expr) -> str:
        """The value of an expression.

        Errors: CodegenError if it is no integer arithmetic over the symbols.
        """
        for e in walk(root):
            if e not in self._values:
                self._values[e] = self._value(e)
        return self._values[root]

    def holds(self, condition: Expr) -> str:
        """A bit that is set if a condition holds, and no number that it is about was too large.

        Of several conditions one of which is enough, one of whose numbers all fit has to hold.
        """
        match condition:
            case n.And(x, y):
                return self.emit(f"and i1 {self.holds(x)}, {self.holds(y)}")
            case n.Or(x, y):
                return self.emit(f"or i1 {self.holds(x)}, {self.holds(y)}")
        bit = self.value(condition)
        for e in walk(condition):
            if e in self._overflow_of:
                bit = self.emit(f"select i1 {self._overflow_of[e]}, i1 false, i1 {bit}")
        return bit

    def _value(self, e: Expr) -> str:
        if e.dtype not in (I64, BOOL):
            raise CodegenError(f"a size may not be {e.dtype}", op="entry", node=str(e))
        kids = [self._values[c] for c in e.children]
        match e:
            case Const(value):
                return str(value).lower()
            case Var() if e in self.symbols:
                return self.slot(self.symbols[e], "i64")
            case n.FloorDiv() | n.FloorMod() | n.Div():
                return self._divide(e, *kids)
            case n.Min() | n.Max():
                name = _INTRINSICS[type(e)]
                return self.emit(f"call i64 @llvm.{name}.i64(i64 {kids[0]}, i64 {kids[1]})")
            case n.Eq(x) | n.Ne(x):
                test = "eq" if isinstance(e, n.Eq) else "ne"
                return self.emit(f"icmp {test} {_llvm(x.dtype)} {kids[0]}, {kids[1]}")
            case n.Not():
                return self.emit(f"xor i1 {kids[0]}, true")
            case n.Select():
                type_ = _llvm(e.dtype)
                return self.emit(f"select i1 {kids[0]}, {type_} {kids[1]}, {type_} {kids[2]}")
            case n.Cast(x) if x.dtype is BOOL:
                return self.emit(f"zext i1 {kids[0]} to i64")
            case n.Cast():
                return self.emit(f"icmp ne i64 {kids[0]}, 0")
            case n.Add() | n.Sub() | n.Mul() if self.checked:
                found = self.exact(type(e).__name__.lower(), *kids)
                self._overflow_of[e] = self.overflows[-1]
                return found
            case n.Binary() if type(e) in _SIMPLE:
                return self.emit(f"{_SIMPLE[type(e)]} {kids[0]}, {kids[1]}")
            case _:
                raise CodegenError("a size is not integer arithmetic over the symbols", node=str(e))

    def _divide(self, e: n.Binary, x: str, y: str) -> str:
        if isinstance(e.rhs, Const) and e.rhs.value:
            divisor = y
            power = int(e.rhs.value)
            if power > 0 and power & (power - 1) == 0 and not isinstance(e, n.Div):
                if isinstance(e, n.FloorDiv):
                    return self.emit(f"ashr i64 {x}, {power.bit_length() - 1}")
                return self.emit(f"and i64 {x}, {power - 1}")
        else:
            zero = self.emit(f"icmp eq i64 {y}, 0")
            least = self.emit(f"icmp eq i64 {x}, {I64.min}")  # by -1 it has no quotient
            minus = self.emit(f"icmp eq i64 {y}, -1")
            zero = self.emit(f"or i1 {zero}, {self.emit(f'and i1 {least}, {minus}')}")
            divisor = self.emit(f"select i1 {zero}, i64 1, i64 {y}")
            x = self.emit(f"select i1 {zero}, i64 0, i64 {x}")
        quotient = self.emit(f"sdiv i64 {x}, {divisor}")
        if isinstance(e, n.Div):
            return quotient
        product = self.emit(f"mul i64 {quotient}, {divisor}")
        rest = self.emit(f"sub i64 {x}, {product}")
        signs = self.emit(f"xor i64 {rest}, {divisor}")
        opposite = self.emit(f"icmp slt i64 {signs}, 0")
        some = self.emit(f"icmp ne i64 {rest}, 0")
        below = self.emit(f"and i1 {opposite}, {some}")
        if isinstance(e, n.FloorDiv):
            one = self.emit(f"zext i1 {below} to i64")
            return self.emit(f"sub i64 {quotient}, {one}")
        more = self.emit(f"select i1 {below}, i64 {divisor}, i64 0")
        return self.emit(f"add i64 {rest}, {more}")


def _llvm(dtype: DType) -> str:
    return "i1" if dtype is BOOL else "i64"
