"""What names of an ONNX model stand for: tensors, sequences of them, and optional ones.

Sequences exist during the import only. One whose length is known is its tensors. Any other is
*packed* into two: ``values``, all elements of all tensors one after the other, and ``shapes``, a
row for each tensor: its rank, and its dimensions, with ones behind them up to ``MOST_RANK``. An
optional tensor is a packed sequence of one or none; an optional sequence is a packed one and a bool
that says whether it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from planish.compiler.dtypes import F32, DType
from planish.compiler.errors import ImportModelError
from planish.compiler.expr.nodes import Expr, free_vars
from planish.compiler.expr.sizes import same
from planish.compiler.graph.ir import TensorType, Value


@dataclass(frozen=True)
class Elements:
    """What is known of the shapes of all tensors in a sequence.

    ``dims`` is None if not even the rank is; a dimension is None if it is not known, or not the
    same in all. Of those in a sequence that is certainly empty anything is true: ``never``.
    """

    dims: tuple[Expr | None, ...] | None = None
    never: bool = False

    @property
    def shape(self) -> tuple[Expr, ...] | None:
        """The shape of all, if it is known."""
        known = tuple(d for d in self.dims or () if d is not None)
        return known if self.dims is not None and len(known) == len(self.dims) else None

    def joined(self, other: Elements) -> Elements:
        """What is true of both."""
        if self.never or other.never:
            return other if self.never else self
        if self.dims is None or other.dims is None or len(self.dims) != len(other.dims):
            return Elements()
        return Elements(
            tuple(
                a if a is not None and b is not None and same(a, b) else None
                for a, b in zip(self.dims, other.dims, strict=True)
            )
        )

    def __str__(self) -> str:
        if self.never or self.dims is None:
            return "[...]"
        return f"[{', '.join('?' if d is None else str(d) for d in self.dims)}]"


NEVER: Final = Elements(never=True)


def elements_of(*types: TensorType) -> Elements:
    """What is known of the shapes of tensors of these types."""
    out = NEVER
    for type in types:
        out = out.joined(Elements(type.shape))
    return out


@dataclass(frozen=True, eq=False)
class ValueSequence:
    """A sequence of known length; ``empty`` is the dtype of one without tensors."""

    items: tuple[Value, ...]
    empty: DType = F32

    @property
    def dtype(self) -> DType:
        return self.items[0].type.dtype if self.items else self.empty

    @property
    def elements(self) -> Elements:
        return elements_of(*(v.type for v in self.items))

    def __repr__(self) -> str:
        return f"a sequence of {len(self.items)}"


@dataclass(frozen=True, eq=False)
class PackedSequence:
    """A sequence whose length only a call knows; see the module's text."""

    values: Value
    shapes: Value
    elements: Elements

    @property
    def dtype(self) -> DType:
        return self.values.type.dtype

    @property
    def length(self) -> Expr:
        return self.shapes.type.shape[0]

    def __repr__(self) -> str:
        return f"a sequence of {self.dtype}{self.elements}"


@dataclass(frozen=True, eq=False)
class KnownOptional:
    """An optional of which is known whether it is there: ``item``, or None.

    If it is not: ``dtype`` and whether it would be a sequence.
    """

    item: Value | ValueSequence | PackedSequence | None
    dtype: DType = F32
    of_sequence: bool = False

    def __repr__(self) -> str:
        return "an empty optional" if self.item is None else f"an optional of {self.item!r}"


@dataclass(frozen=True, eq=False)
class PackedOptional:
    """An optional of which only a call knows whether it is there.

    ``present`` is None for an optional tensor.
    """

    sequence: PackedSequence
    present: Value | None = None

    def __repr__(self) -> str:
        kind = "tensor" if self.present is None else "sequence"
        return f"an optional {kind} of {self.sequence.dtype}{self.sequence.elements}"


@dataclass(frozen=True, eq=False)
class Maps:
    """A map: its keys and its values [k]; or several of the same keys, with values [n, k]."""

    keys: Value
    values: Value

    @property
    def has_many(self) -> bool:
        return self.values.type.rank == 2

    def __repr__(self) -> str:
        many = "maps" if self.has_many else "a map"
        return f"{many} from {self.keys.type.dtype} to {self.values.type.dtype}"


Sequence: TypeAlias = ValueSequence | PackedSequence
Optional: TypeAlias = KnownOptional | PackedOptional
Item: TypeAlias = Value | Sequence | Optional | Maps
ITEMS: Final = (Value, ValueSequence, PackedSequence, KnownOptional, PackedOptional, Maps)


def tensors(item: Item | None) -> tuple[Value, ...]:
    """The tensors that an item is made of."""
    match item:
        case None:
            return ()
        case Value():
            return (item,)
        case ValueSequence():
            return item.items
        case PackedSequence():
            return item.values, item.shapes
        case Maps():
            return item.keys, item.values
        case KnownOptional():
            return tensors(item.item)
        case PackedOptional():
            present = () if item.present is None else (item.present,)
            return (*tensors(item.sequence), *present)


def of_tensors(item: Item, values: tuple[Value, ...]) -> Item:
    """The same kind of item, made of others."""
    match item:
        case Value():
            return values[0]
        case ValueSequence():
            return replace(item, items=values)
        case PackedSequence():
            return replace(item, values=values[0], shapes=values[1])
        case Maps():
            return Maps(*values)
        case KnownOptional(None):
            return item
        case KnownOptional(inner):
            assert inner is not None
            now = of_tensors(inner, values)
            assert isinstance(now, Value | ValueSequence | PackedSequence)
            return replace(item, item=now)
        case PackedOptional(inner):
            packed = replace(inner, values=values[0], shapes=values[1])
            return PackedOptional(packed, values[2] if item.present is not None else None)


# ------------------------------------------------------------------------------------------- forms


@dataclass(frozen=True)
class Form:
    """How an item passes a branch or a loop: as which tensors.

    ``kind``: tensor, known (a sequence of ``ranks``), packed, optional (of a tensor), or optional
    sequence.
    """

    kind: str
    dtype: DType
    elements: Elements = NEVER
    ranks: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """Of how many tensors it consists."""
        fixed = {"tensor": 1, "packed": 2, "optional": 2, "optional sequence": 3}
        return len(self.ranks) if self.kind == "known" else fixed[self.kind]

    def joined(self, other: Form) -> Form:
        """The form that items of both can take.

        Errors: ImportModelError if there is none.
        """
        if self.dtype is not other.dtype and not self._of_nothing and not other._of_nothing:
            raise ImportModelError(f"it is {self}, and becomes {other}")
        dtype = other.dtype if self._of_nothing else self.dtype
        elements = self.elements.joined(other.elements)
        if self.kind == other.kind and self.ranks == other.ranks:
            return replace(self, dtype=dtype, elements=elements)
        kinds = {self.kind, other.kind}
        if kinds <= {"known", "packed"}:
            return Form("packed", dtype, elements)
        if kinds <= {"tensor", "optional"}:
            return Form("optional", dtype, elements)
        if kinds <= {"known", "packed", "optional sequence"}:
            return Form("optional sequence", dtype, elements)
        raise ImportModelError(f"it is {self}, and becomes {other}")

    @property
    def _of_nothing(self) -> bool:
        return self.kind == "known" and not self.ranks

    def without(self, known: frozenset[str]) -> Form:
        """Without dimensions in other symbols than these."""
        dims = self.elements.dims
        if dims is None:
            return self
        held = tuple(
            d if d is not None and all(v.name in known for v in free_vars(d)) else None
            for d in dims
        )
        return replace(self, elements=replace(self.elements, dims=held))

    def __str__(self) -> str:
        if self.kind == "tensor":
            return f"a tensor of {self.dtype}"
        named = {"optional": "an optional", "optional sequence": "an optional sequence"}
        return f"{named.get(self.kind, 'a sequence')} of {self.dtype}{self.elements}"


def form_of(item: Item) -> Form:
    """The form that an item has.

    Errors: ImportModelError for maps, which no branch or loop gives.
    """
    match item:
        case Maps():
            raise ImportModelError(f"it is {item!r}, which stays where it is made")
        case Value():
            return Form("tensor", item.type.dtype, elements_of(item.type))
        case ValueSequence():
            ranks = tuple(v.type.rank for v in item.items)
            return Form("known", item.dtype, item.elements, ranks)
        case PackedSequence():
            return Form("packed", item.dtype, item.elements)
        case KnownOptional(None):
            kind = "optional sequence" if item.of_sequence else "optional"
            return Form(kind, item.dtype)
        case KnownOptional(inner):
            assert inner is not None
            kind = "optional" if isinstance(inner, Value) else "optional sequence"
            return replace(form_of(inner), kind=kind, ranks=())
        case PackedOptional(inner):
            kind = "optional" if item.present is None else "optional sequence"
            return Form(kind, inner.dtype, inner.elements)


def of_form(form: Form, values: tuple[Value, ...]) -> Item:
    """The item of a form that these tensors are."""
    if form.kind == "tensor":
        return values[0]
    if form.kind == "known":
        return ValueSequence(values, form.dtype)
    packed = PackedSequence(values[0], values[1], form.elements)
    if form.kind == "packed":
        return packed
    return PackedOptional(packed, values[2] if form.kind == "optional sequence" else None)
