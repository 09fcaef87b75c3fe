"""Operators of vision models: sampling at given places, regions of interest, boxes."""

from __future__ import annotations

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.graph.ir import Value, unify
from planish.compiler.ops.deformable import DeformConv
from planish.compiler.ops.elementwise import Max, Min
from planish.compiler.ops.grids import AffineGrid, GridSample
from planish.compiler.ops.images import ImageDecode, ImageSize
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.regions import MaxRoiPool, RoiAlign, RoiBins, RoiSamples
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.suppression import NonMaxSuppression, SelectedIndices
from planish.compiler.ops.unpooling import Col2Im, MaxUnpool

from .nn import per_axis, step, weights_kernel
from .reader import NodeReader, handles

_MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}  # before version 20
_MANY = (1 << 31) - 1


@handles("GridSample", 16, 20, 22)
def grid_sample(r: NodeReader) -> Value:
    """Modes have other names since version 20."""
    x, grid = r.input(0), r.input(1)
    mode = r.attribute("mode", "bilinear" if r.version < 20 else "linear")
    if r.version < 20:
        if mode not in _MODES:
            raise r.fail(f"mode {mode} does not exist", hint=f"one of {', '.join(_MODES)}")
        mode = _MODES[mode]
    padding = r.attribute("padding_mode", "zeros")
    return r.one(GridSample(mode, padding, bool(r.attribute("align_corners", 0))), x, grid)


@handles("AffineGrid", 20)
def affine_grid(r: NodeReader) -> Value:
    """The size is that of the image: batch, channels and what the grid has."""
    theta = r.input(0)
    size = r.content(1, "the size")
    if len(size) not in (4, 5):
        raise r.fail(f"the size has {len(size)} numbers, not 4 or 5")
    batch, *rest = size
    if theta.type.rank == 3:
        unify(theta.type.shape[0], batch, "the batch of theta and of the size differ")
    return r.one(AffineGrid(tuple(rest[1:]), bool(r.attribute("align_corners", 0))), theta)


@handles("RoiAlign", 10, 16, 22)
def roi_align(r: NodeReader) -> Value:
    """Half pixels since version 16."""
    x, rois, batches = r.input(0), r.input(1), r.input(2)
    coordinates = "output_half_pixel"
    if r.version >= 16:
        coordinates = r.attribute("coordinate_transformation_mode", "half_pixel")
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise r.fail(f"coordinate_transformation_mode {coordinates} does not exist")
    half = coordinates == "half_pixel"
    bins = int(r.attribute("output_height", 1)), int(r.attribute("output_width", 1))
    if min(bins) < 1:
        raise r.fail(f"an output of {bins[0]} by {bins[1]}")
    ratio, scale = int(r.attribute("sampling_ratio", 0)), float(r.attribute("spatial_scale", 1.0))
    mode = r.attribute("mode", "avg")
    if ratio > 0:
        most: tuple[Expr, ...] = as_expr(ratio), as_expr(ratio)
    else:
        most = tuple(
            r.symbol(
                step(r, RoiSamples(axis, bins[axis], scale, half), rois), "the samples of a bin"
            )
            for axis in (0, 1)
        )
    return r.one(RoiAlign(bins, most, max(ratio, 0), scale, mode, half), x, rois, batches)


@handles("MaxRoiPool", 1, 22)
def max_roi_pool(r: NodeReader) -> Value:
    """All versions alike."""
    x, rois = r.input(0), r.input(1)
    shape = [int(v) for v in r.required("pooled_shape")]
    if len(shape) != 2 or min(shape) < 1:
        raise r.fail(f"pooled_shape {shape} must be two positive numbers")
    if x.type.rank != 4:
        raise r.fail(f"{x!r} must have four axes")
    bins, scale = (shape[0], shape[1]), float(r.attribute("spatial_scale", 1.0))
    height, width = (
        r.symbol(step(r, RoiBins(axis, bins[axis], x.type.shape[2 + axis], scale), rois), "bins")
        for axis in (0, 1)
    )
    return r.one(MaxRoiPool(bins, (height, width), scale), x, rois)


@handles("NonMaxSuppression", 10, 11)
def non_max_suppression(r: NodeReader) -> Value:
    """Both versions alike; without a greatest number of boxes there are none."""
    boxes, scores = r.input(0), r.input(1)
    centres = int(r.attribute("center_point_box", 0))
    if centres not in (0, 1):
        raise r.fail(f"center_point_box {centres} must be 0 or 1")
    most = _most(r, r.optional(2))
    iou, threshold = (
        v if v is not None and v.type.size != 0 else None for v in map(r.optional, (3, 4))
    )
    op = NonMaxSuppression(most, bool(centres))
    picked, counts = r.builder.apply(op, boxes, scores, iou, threshold, origin=r.label)
    count = r.symbol(step(r, ReduceSum(None, False), counts), "the number of boxes")
    return r.one(SelectedIndices(count), picked, counts)


def _most(r: NodeReader, value: Value | None) -> Expr:
    """The greatest number of boxes of a class."""
    if value is None or value.type.size == 0:
        return as_expr(0)
    if value.content is not None:
        if len(value.content) != 1:
            raise r.fail(f"{value!r} must be one number")
        return n.maximum(value.content[0], 0)
    number = step(r, Reshape(()), value)
    number = step(r, Max(), number, r.constant(np.array(0, np.int64)))
    return r.symbol(
        step(r, Min(), number, r.constant(np.array(_MANY, np.int64))), "max_output_boxes_per_class"
    )


@handles("DeformConv", 19, 22)
def deform_conv(r: NodeReader) -> Value:
    """All versions alike."""
    x, w, offset = r.input(0), r.input(1), r.input(2)
    rank = x.type.rank - 2
    if rank < 1:
        raise r.fail(f"{x!r} has no spatial axes")
    weights_kernel(r, w.type)
    op = DeformConv(
        per_axis(r, "strides", rank, 1),
        per_axis(r, "dilations", rank, 1),
        per_axis(r, "pads", 2 * rank, 0),
        int(r.attribute("group", 1)),
        int(r.attribute("offset_group", 1)),
    )
    return r.one(op, x, w, offset, r.optional(3), r.optional(4))


@handles("Col2Im", 18)
def col2im(r: NodeReader) -> Value:
    """The image's and the block's shapes are inputs."""
    image, block = r.content(1, "the image's shape"), r.content(2, "the block's shape")
    rank = len(image)
    op = Col2Im(
        image,
        block,
        per_axis(r, "strides", rank, 1),
        per_axis(r, "dilations", rank, 1),
        per_axis(r, "pads", 2 * rank, 0),
    )
    return r.one(op, r.input(0))


@handles("MaxUnpool", 9, 11, 22)
def max_unpool(r: NodeReader) -> Value:
    """Indices count in the tensor that the window's attributes give, whatever output_shape is."""
    x, indices = r.input(0), r.input(1)
    rank = x.type.rank - 2
    kernel = [int(k) for k in r.required("kernel_shape")]
    if rank < 1 or len(kernel) != rank:
        raise r.fail(f"kernel_shape {kernel} does not fit {x!r}")
    strides, pads = per_axis(r, "strides", rank, 1), per_axis(r, "pads", 2 * rank, 0)
    if min(*kernel, *strides) < 1 or min(pads) < 0:
        raise r.fail(f"a window of {kernel} with strides {strides} and pads {pads}")
    inner = []
    for k, size in enumerate(x.type.shape[2:]):
        whole = n.add(n.mul(n.sub(size, 1), strides[k]), kernel[k] - pads[k] - pads[k + rank])
        inner.append(n.maximum(whole, 0))
    outer: tuple[Expr, ...] = tuple(inner)
    if r.optional(2) is not None:
        wanted = r.content(2, "the output's shape")
        if len(wanted) != rank + 2:
            raise r.fail(f"the output's shape has {len(wanted)} numbers, not {rank + 2}")
        for d, e in zip(x.type.shape, wanted[:2], strict=False):
            unify(d, e, "the output has other batches or channels than x")
        outer = wanted[2:]
    return r.one(MaxUnpool(tuple(inner), outer), x, indices)


@handles("ImageDecoder", 20)
def image_decoder(r: NodeReader) -> Value:
    """The file tells the sizes; one that cannot be read is an error rather than an empty matrix."""
    file = r.input(0)
    pixel_format = str(r.attribute("pixel_format", "RGB"))
    size = r.builder.one(ImageSize(), file, origin=r.label)
    rows, columns = r.symbols(size, "the size of the picture")
    return r.one(ImageDecode(rows, columns, pixel_format), file)
