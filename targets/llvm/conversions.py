"""Values from one dtype to another, by the arithmetic of their bits where LLVM has no conversion.

Floats below f32 and integers of fewer than 8 bits are kept as their bits, in as many bytes as they
take in memory. A float of few bits becomes an f32 exactly; one is made of an f32 or an f64 in one
rounding, to even, whatever the number: no branch, no call, and all lanes at once.

Of a float's magnitude, as an integer, the exponent's bias is replaced and the last places are
rounded off by adding a little less than half of what is cut off, and one more where what remains is
odd. That is wrong below the least normal number; there a constant is added, as floats, whose last
place is the least number, so that the adder rounds.
"""

from __future__ import annotations

from planish.compiler.dtypes import (
    BF16,
    BOOL,
    F8E8M0,
    F16,
    F32,
    F64,
    I32,
    U8,
    U16,
    U32,
    U64,
    DType,
    Layout,
)
from planish.compiler.expr import nodes as n

from .operations import Operations
from .values import Val, constant, lanes_type, scalar_type, type_suffix


class Conversions(Operations):
    """Emits conversions."""

    def convert(self, v: Val, dtype: DType) -> Val:
        """A value in another dtype."""
        source = v.dtype
        if source is dtype:
            return v
        if source.computed is not source:
            wide = self._extended(v) if source.is_float else self._unpacked(v)
            return self.convert(wide, dtype)
        if dtype is BOOL:
            return self.compare(n.Ne, v, constant(0, source, v.lanes))
        if source is BOOL and dtype.is_float:
            return self.choose(v, constant(1.0, dtype, v.lanes), constant(0.0, dtype, v.lanes))
        if dtype.is_packed and not dtype.is_float:
            wide = self.convert(self._inside(v, dtype) if source.is_float else v, dtype.computed)
            mask = constant((1 << dtype.bits) - 1, dtype.computed, v.lanes)
            return Val(self.b.emit(f"and {wide.typed}, {mask.text}"), dtype, v.lanes)
        if dtype.computed is not dtype:
            return self._shortened(v if source.is_float else self._near(v, dtype), dtype)
        return self._native(v, dtype)

    def _inside(self, v: Val, dtype: DType) -> Val:
        """A float as ``i32``, 0 if an integer of fewer than 8 bits cannot be it."""
        whole = self.convert(v, I32)
        least, most, zero = (constant(k, I32, v.lanes) for k in (dtype.min, dtype.max, 0))
        high = self.choose(self.compare(n.Lt, most, whole), zero, whole)
        return self.choose(self.compare(n.Lt, whole, least), zero, high)

    def _native(self, v: Val, dtype: DType) -> Val:
        """By an instruction."""
        source, emit = v.dtype, self.b.emit
        target = Val("", dtype, v.lanes).type
        how = _conversion(source, dtype)
        if how is None:
            return Val(v.text, dtype, v.lanes)
        if how.startswith("llvm."):
            types = (type_suffix(scalar_type(t), v.lanes) for t in (dtype, source))
            full = ".".join((how, *types))
            self.b.module.declare(full, target, v.type)
            return Val(emit(f"call {target} @{full}({v.typed})"), dtype, v.lanes)
        return Val(emit(f"{how} {v.typed} to {target}"), dtype, v.lanes)

    def _near(self, v: Val, dtype: DType) -> Val:
        """An integer as a float that becomes the same of the dtype as the integer itself.

        Of most dtypes f32 will do: it has all integers up to the greatest number.
        """
        if v.dtype.bits <= 16 or dtype not in (BF16, F8E8M0):
            return self.convert(v, F32)
        if v.dtype.bits < 64:
            return self.convert(v, F64)
        # Its last places become one bit that tells whether there is something in them.
        t, lanes = v.dtype, v.lanes
        zero = constant(0, t, lanes)
        low = self._bits("and", v, 0xFFF)
        some = self.choose(self.compare(n.Eq, low, zero), zero, constant(0x800, t, lanes))
        odd = self.binary(n.Add, self.binary(n.Sub, v, low), some)
        small = self.compare(n.Lt, self.call("abs", [v], t), constant(1 << 53, t, lanes))
        return self.convert(self.choose(small, v, odd), F64)

    def _bits(self, how: str, x: Val, y: int) -> Val:
        """An integer operation with a constant."""
        text = f"{how} {x.typed}, {constant(y, x.dtype, x.lanes).text}"
        return Val(self.b.emit(text), x.dtype, x.lanes)

    # ------------------------------------------------------------------------- to wider dtypes

    def _unpacked(self, v: Val) -> Val:
        """An integer of fewer than 8 bits in 8."""
        wide = Val(v.text, v.dtype.computed, v.lanes)
        above = 8 - v.dtype.bits
        if v.dtype.kind == "u":
            return self._bits("and", wide, (1 << v.dtype.bits) - 1)
        return self._bits("ashr", self._bits("shl", wide, above), above)

    def _extended(self, v: Val) -> Val:
        """A float below f32 as f32, exactly."""
        lanes, layout = v.lanes, v.dtype.layout
        assert layout is not None
        if v.dtype is F16 and self.isa.halves:
            half = self.b.emit(f"bitcast {v.typed} to {lanes_type('half', lanes)}")
            to = Val("", F32, lanes).type
            return Val(self.b.emit(f"fpext {lanes_type('half', lanes)} {half} to {to}"), F32, lanes)
        word = self.convert(Val(v.text, U16 if v.dtype.bytes == 2 else U8, lanes), U32)
        if v.dtype is BF16:
            return self.call("bitcast", [self._bits("shl", word, 16)], F32)
        if layout.special == "scale":
            return self._extended_power(word)
        size = self._bits("and", word, (1 << (v.dtype.bits - 1)) - 1)
        moved = self._bits("shl", size, 23 - layout.mantissa)
        normal = self._bits("add", moved, (127 - layout.bias) << 23)
        start = constant(_first_step(layout, F32), U32, lanes)
        low = self.call("bitcast", [self.binary(n.Add, size, start)], F32)
        low = self.binary(n.Sub, low, self.call("bitcast", [start], F32))
        tiny = self.compare(n.Lt, size, constant(1 << layout.mantissa, U32, lanes))
        out = self.choose(tiny, self.call("bitcast", [low], U32), normal)
        nan = constant(0x7FC00000, U32, lanes)
        if layout.special in ("ieee", "fn"):
            beyond = self.compare(n.Lt, constant(layout.top, U32, lanes), size)
            over = self._bits("or", out, 0x7F800000) if layout.has_infinities else nan
            out = self.choose(beyond, over, out)
        sign = self._bits("and", word, _sign(v.dtype))
        out = self._either(out, self._bits("shl", sign, 32 - v.dtype.bits))
        if layout.special == "fnuz":
            at = self.compare(n.Eq, word, constant(_sign(v.dtype), U32, lanes))
            out = self.choose(at, nan, out)
        return self.call("bitcast", [out], F32)

    def _extended_power(self, word: Val) -> Val:
        """Of ``f8e8m0``: its bits are the exponent's, but for the least number and NaN."""
        lanes = word.lanes
        out = self._bits("shl", word, 23)
        for code, bits in ((0, 0x00400000), (255, 0x7FC00000)):
            at = self.compare(n.Eq, word, constant(code, U32, lanes))
            out = self.choose(at, constant(bits, U32, lanes), out)
        return self.call("bitcast", [out], F32)

    def _either(self, x: Val, y: Val) -> Val:
        """The bits of both."""
        return Val(self.b.emit(f"or {x.typed}, {y.text}"), x.dtype, x.lanes)

    # ----------------------------------------------------------------------- to narrower dtypes

    def _shortened(self, v: Val, dtype: DType) -> Val:
        """An f32 or f64 rounded to a float below f32."""
        lanes, source, layout = v.lanes, v.dtype, dtype.layout
        assert layout is not None and source.layout is not None
        if dtype is F16 and source is F32 and self.isa.halves:
            t = lanes_type("half", lanes)
            half = self.b.emit(f"fptrunc {v.typed} to {t}")
            return Val(self.b.emit(f"bitcast {t} {half} to {lanes_type('i16', lanes)}"), F16, lanes)
        word = U32 if source is F32 else U64
        bits = self.call("bitcast", [v], word)
        if layout.special == "scale":
            return self._narrowed(self._nearest_power(bits, source.layout), dtype)
        size = self._bits("and", bits, (1 << (source.bits - 1)) - 1)
        near = self._rounded_off(size, source, layout)
        infinity = ((1 << source.layout.exponent) - 1) << source.layout.mantissa
        beyond = layout.top + layout.has_nan  # an infinity, NaN, or the greatest number
        near = self.intrinsic("llvm.umin", [near, constant(beyond, word, lanes)])
        near = self._below_normal(size, near, source, layout)
        sign = self._bits("and", self._bits("lshr", bits, source.bits - dtype.bits), _sign(dtype))
        nan = self.compare(n.Lt, constant(infinity, word, lanes), size)
        match layout.special:
            case "ieee":
                quiet = layout.top + 1 + (1 << (layout.mantissa - 1))
                near = self.choose(nan, constant(quiet, word, lanes), near)
            case "fnuz":  # neither zero nor NaN have a sign
                bare = self._bits("and", near, _sign(dtype) - 1)
                plain = self.compare(n.Eq, bare, constant(0, word, lanes))
                sign = self.choose(plain, constant(0, word, lanes), sign)
            case "finite":
                near = self.choose(nan, constant(0, word, lanes), near)
                sign = self.choose(nan, constant(_sign(dtype), word, lanes), sign)
        return self._narrowed(self._either(near, sign), dtype)

    def _narrowed(self, bits: Val, dtype: DType) -> Val:
        narrow = self.convert(bits, U16 if dtype.bytes == 2 else U8)
        return Val(narrow.text, dtype, bits.lanes)

    def _rounded_off(self, size: Val, source: DType, layout: Layout) -> Val:
        """The magnitude's bits in the layout, if it is a normal number there."""
        assert source.layout is not None
        cut = source.layout.mantissa - layout.mantissa
        odd = self._bits("and", self._bits("lshr", size, cut), 1)
        rebias = (source.layout.bias - layout.bias) << source.layout.mantissa
        almost_half = (1 << (cut - 1)) - 1
        step = (almost_half - rebias) % (1 << source.bits)
        return self._bits("lshr", self.binary(n.Add, self._bits("add", size, step), odd), cut)

    def _below_normal(self, size: Val, near: Val, source: DType, layout: Layout) -> Val:
        """``near``, but what the float adder says where the magnitude is below normal numbers."""
        assert source.layout is not None
        if source.layout.bias == layout.bias:
            return near
        word, lanes = size.dtype, size.lanes
        start = constant(_first_step(layout, source), word, lanes)
        number = self.call("bitcast", [size], source)
        moved = self.binary(n.Add, number, self.call("bitcast", [start], source))
        steps = self.binary(n.Sub, self.call("bitcast", [moved], word), start)
        least = (1 - layout.bias + source.layout.bias) << source.layout.mantissa
        return self.choose(self.compare(n.Lt, size, constant(least, word, lanes)), steps, near)

    def _nearest_power(self, bits: Val, source: Layout) -> Val:
        """The exponent that ``f8e8m0`` keeps; all ones where there is none, for signs too."""
        word, lanes, bias = bits.dtype, bits.lanes, source.bias - 127
        half = 1 << (source.mantissa - 1)
        up = self._bits("lshr", self._bits("add", bits, half), source.mantissa)
        if bias:
            least = self.compare(n.Lt, up, constant(bias, word, lanes))
            up = self.choose(least, constant(bias, word, lanes), up)
            up = self._bits("sub", up, bias)
        else:  # the least number is below the normal ones
            least = self.compare(n.Lt, bits, constant(0x00600000, word, lanes))
            tiny = self.choose(least, constant(0, word, lanes), constant(1, word, lanes))
            low = self.compare(n.Lt, bits, constant(0x00800000, word, lanes))
            up = self.choose(low, tiny, up)
        positive = self._bits("sub", bits, 1)  # zero becomes the greatest
        infinity = ((1 << source.exponent) - 1) << source.mantissa
        valid = self.compare(n.Lt, positive, constant(infinity - 1, word, lanes))
        up = self.choose(valid, up, constant(255, word, lanes))
        return self.intrinsic("llvm.umin", [up, constant(255, word, lanes)])


def _sign(dtype: DType) -> int:
    return 1 << (dtype.bits - 1)


def _first_step(layout: Layout, source: DType) -> int:
    """The bits of the float of ``source`` whose last place is the least number of the layout."""
    assert source.layout is not None
    return (layout.least + source.layout.mantissa + source.layout.bias) << source.layout.mantissa


def _conversion(source: DType, target: DType) -> str | None:
    if source.is_float and target.is_float:
        return "fpext" if target.bits > source.bits else "fptrunc"
    if source.is_float:  # saturating: defined for every value, NaN gives 0
        return f"llvm.fpto{'s' if target.kind == 'i' else 'u'}i.sat"
    if target.is_float:
        return "sitofp" if source.kind == "i" else "uitofp"
    if source is BOOL:
        return "zext"
    if target.bits == source.bits:
        return None
    return "trunc" if target.bits < source.bits else "sext" if source.kind == "i" else "zext"


__all__ = ["Conversions"]
