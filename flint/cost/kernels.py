"""Kernels: how long a node really takes; the roofline is only a bound.

The idea: matrix units compute whole tiles, in whole waves.  A product of size (b, m, n, k) on tiles
of tm x tn and U units, its sum over k cut into s parts, has

    tiles = b ceil(m/tm) ceil(n/tn) s         waves = ceil(tiles / U)
    seconds = waves * 2 tm tn K / (peak / U * matmul efficiency * tile efficiency)

where K is k/s rounded up to whole steps, so that utilisation is the share of the waves that the
matrices fill (NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave
quantisation).  Cutting the sum costs writing and reading the s partial results in f32.  The best
tile is taken, and the best cut where there are fewer tiles than units, as libraries do.  A product
that would fill too little of any tile (each channel of a depthwise convolution has one column)
runs on the vector units, which libraries use for it, at the same share of their peak.  Fused
attention keeps its scores on the chip, and its products reach a share of that rate,
``attention_efficiency``, because softmax and products of one tile wait for each other; heads and
blocks of ``attention_block`` are computed whole (``attention_tiles.py``).  The share of the kernels
that come with PyTorch is ``flash_attention_efficiency``, except for cuDNN's, and in steps that no
compiler has changed ``eager_attention_efficiency``; its memory-efficient kernel, which takes other
sizes and masks, has ``efficient_attention_efficiency``, and attention in 8 bits
``narrow_attention_efficiency``.  Everything else runs at its peak, units work in parallel, bytes
move at bandwidth * memory efficiency, and

    kernel = max(matmul, vector, transcendental, bytes) + latency + launch overhead

With the peaks of the roofline this is never below it.

    seconds = kernel_seconds(graph, load_system("dgx-h100"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.attention_alone import longer_than_at_the_peak, random_seconds
from flint.cost.attention_tiles import visited, with_whole_heads
from flint.cost.classes import is_attention, is_compiled, named
from flint.cost.curves import curve_seconds
from flint.cost.gathers import index_seconds
from flint.cost.grouped import SUMS, groups_of, reached, rows_visited, tiles_down, whole_tiles
from flint.cost.hardware import Accelerator, System
from flint.cost.library_kernels import UNALIGNED, at_least, beside
from flint.cost.roofline import Seconds, as_measured, rate_table, slowest_unit, type_efficiency
from flint.errors import FlintError
from flint.graph.distinct import distinct
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.tensor_types import DTYPES
from flint.graph.transfers import has_transfers, transfers
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry

#: Numbers of parts that libraries cut the sum over k into.
_CUTS: Final = (1, 2, 4, 8, 16)
#: Bytes of a partial result: accumulated in f32, written once and read once.
_PARTIAL: Final = 8
#: Floating-point types of 8 bits.
_NARROW: Final = [code for code, name in enumerate(DTYPES) if name.startswith("f8")]
#: Of 16 bits.
_HALF: Final = [DTYPES.index(name) for name in ("bf16", "f16")]
#: Names of PyTorch's kernels, whose attention is slower but for that of cuDNN, which is written for
#: the device.  PyTorch's compiler calls them as they are.
_ATEN, _CUDNN, _EFFICIENT = "aten.", "cudnn", "efficient_attention"
#: Names of convolutions, which reach less than products of matrices do alone.
_CONVOLUTION: Final = ("convolution", "conv_general", "cudnn$conv")


#: Seconds per node of a graph, shape [nodes]; 0 for nodes that do not compute.
Estimator = Callable[[WorkloadGraph, System], Seconds]
#: From a graph, some work items, their peaks and the device: how much longer each takes than at the
#: peak; at least 1.
Products = Callable[[WorkloadGraph, NDArray[np.bool_], Seconds, Accelerator], Seconds]


def kernel_seconds(graph: WorkloadGraph, system: System) -> Seconds:
    """Seconds per node of one graph, shape [nodes]; from measured curves where they exist."""
    accelerator = system.accelerator
    seconds = seconds_with(graph, accelerator, matmul_stretch)
    if not accelerator.curves:
        return seconds
    fitted = curve_seconds(graph, accelerator, product_seconds(graph, accelerator))
    replaced = (fitted >= 0) & (seconds > 0) & (graph.measured_by_node() < 0)
    return np.where(replaced, fitted, seconds)


def product_seconds(graph: WorkloadGraph, accelerator: Accelerator) -> Seconds:
    """Seconds of each node's products on whole tiles in whole waves at the peak, shape [nodes]."""
    perfect = replace(accelerator, kernel=replace(accelerator.kernel, matmul_efficiency=1.0))
    rates = rate_table(accelerator)[graph.work_unit, graph.work_dtype]
    stretch = np.zeros(len(graph.work_flops))
    matmul = graph.work_unit == Unit.MATMUL
    stretch[matmul] = 1.0
    sized = matmul & (graph.work_gemm >= 0)
    if sized.any():
        stretch[sized] = matmul_stretch(graph, sized, rates[sized], perfect)
    return slowest_unit(graph, graph.work_flops / rates * stretch)


def seconds_with(graph: WorkloadGraph, accelerator: Accelerator, products: Products) -> Seconds:
    """Seconds per node of one graph, shape [nodes].

    Nodes without work and traffic (constants that were folded, aliases) take no time and are not
    launched; communication, loop and conditional nodes take 0 here.

    Args:
        graph: the nodes.
        accelerator: the device.
        products: how much longer matrix products of known size take than at the peak.
    """
    model = accelerator.kernel
    rates = rate_table(accelerator)[graph.work_unit, graph.work_dtype]
    stretch = np.ones(len(graph.work_flops))
    matmul = graph.work_unit == Unit.MATMUL
    sized = matmul & (graph.work_gemm >= 0)
    owner = row_of_entry(graph.work_ptr)
    attention = is_attention(graph)
    flash = attention & named(graph, (_ATEN,)) & ~named(graph, (_CUDNN,))
    slower = (attention & ~flash) | named(graph, _CONVOLUTION)
    alone = matmul & ~slower[owner] & model.alone
    faster = replace(accelerator, kernel=replace(model, matmul_efficiency=model.matmul_alone))
    for chosen, device in ((matmul & ~alone, accelerator), (alone, faster)):
        if chosen.any():
            stretch[chosen] = 1 / device.kernel.matmul_efficiency
        known = chosen & sized
        if known.any():
            stretch[known] = products(graph, known, rates[known], device)
    if model.alone and model.unaligned < 1:
        unaligned = [hero == UNALIGNED for _, hero in graph.tables.named_heroes()]
        stretch[alone & np.array(unaligned or [False])[graph.op][owner]] /= model.unaligned
    if accelerator.efficiency:
        stretch[matmul] /= type_efficiency(accelerator)[graph.work_dtype[matmul]]
    share = model.flash_attention_efficiency
    if not is_compiled(graph):
        share = model.eager_attention_efficiency
    attended = matmul & attention[owner]
    narrow = attended & np.isin(graph.work_dtype, _NARROW)
    half = np.isin(graph.work_dtype, _HALF)
    efficient = attended & half & (flash & named(graph, (_EFFICIENT,)))[owner]
    pytorch = attended & flash[owner] & ~(narrow | efficient)
    stretch[attended & ~(pytorch | narrow | efficient)] /= model.attention_efficiency
    stretch[pytorch] /= share
    stretch[efficient] /= model.efficient_attention_efficiency
    stretch[narrow] /= model.narrow_attention_efficiency
    if model.attention_block:
        causal = sized & attention[owner]
        stretch[causal] *= visited(graph, causal, model.attention_block, model.attention_masked)
    back = named(graph, ("backward",))
    if model.alone and model.attention_alone:
        known = sized & (attention & named(graph, (_CUDNN,)))[owner]
        known &= half
        if known.any():
            stretch[known] = longer_than_at_the_peak(graph, known, back, model)
    arithmetic = slowest_unit(graph, graph.work_flops / rates * stretch)
    moved = (graph.bytes_read + graph.bytes_written) / (
        accelerator.memory_bandwidth * model.memory_efficiency
    )
    least = np.maximum(at_least(graph, accelerator), index_seconds(graph, accelerator))
    busy = np.maximum(np.maximum(arithmetic, moved), least)
    busy += beside(graph, accelerator)
    if model.alone:
        busy += random_seconds(graph, attention, back, accelerator)
    if has_transfers(graph):
        busy = np.where(transfers(graph) != 0, _transferred(graph, accelerator), busy)
    seconds = np.where(busy > 0, busy + model.latency + accelerator.launch_overhead, 0.0)
    computes = (graph.kind == NodeKind.COMPUTE) & (graph.role != Role.ALIAS)
    return np.where(computes, as_measured(graph, seconds), 0.0)


def _transferred(graph: WorkloadGraph, accelerator: Accelerator) -> Seconds:
    """Seconds that each node's bytes take on the link to the host, shape [nodes].

    Raises:
        FlintError: that link is not described.
    """
    if not accelerator.host_bandwidth:
        raise FlintError(
            f"{accelerator.name} states no host_bandwidth, and the step copies values between "
            'device and host: add it to its description, as host_bandwidth = "64 GB/s" for '
            "PCIe 5.0 x16"
        )
    seconds: Seconds = graph.bytes_read / accelerator.host_bandwidth
    return seconds


def matmul_stretch(
    graph: WorkloadGraph, sized: NDArray[np.bool_], rates: Seconds, accelerator: Accelerator
) -> Seconds:
    """How much longer than at the peak each product takes.

    Args:
        graph: the graph with the products.
        sized: work items that are products of known size, shape [items].
        rates: their peak FLOP/s.
        accelerator: the device.

    Returns:
        At least 1 per item.
    """
    sizes = np.array(graph.tables.gemms, np.float64).reshape(-1, 4)
    bits = rates.view(np.int64)
    peaks = distinct(bits)  # few, however many items there are
    step = accelerator.kernel.attention_head_step
    attended = is_attention(graph)[row_of_entry(graph.work_ptr)[sized]] & (step > 0)
    pair = graph.work_gemm[sized] * len(peaks) + np.searchsorted(peaks, bits)
    pair = 2 * pair + attended
    pairs = distinct(pair)
    product, number = np.divmod(pairs // 2, max(1, len(peaks)))
    b, m, n, k = np.maximum(sizes[product], 1.0).T
    peak = peaks.view(np.float64)[number]
    ideal = 2 * b * m * n * k / peak
    m, n, k = with_whole_heads(m, n, k, pairs % 2 == 1, max(step, 1))
    best = best_seconds(b, m, n, k, peak, accelerator)
    stretched: Seconds = np.maximum(best / ideal, 1.0)[np.searchsorted(pairs, pair)]
    direct = rates / _direct_rates(accelerator)[graph.work_dtype[sized]]
    stretched = np.minimum(stretched, np.maximum(direct, 1.0))
    place = np.cumsum(sized) - 1
    for item, (groups, dim) in groups_of(graph).items():
        where = place[item]
        dims = np.maximum(sizes[graph.work_gemm[item]], 1.0)
        b = dims[0]
        # If loads differ, FLOPs are those of the mean rank and sizes those of the busiest.
        ideal = max(float(graph.work_flops[item]), 1.0) / rates[where]
        rows, tile = 1, accelerator.kernel.grouped_rows
        wide = accelerator.kernel.grouped_columns
        sides = [whole_tiles(float(side), 0 if i == dim else wide) for i, side in enumerate(dims)]
        m, n, k = (np.asarray(side) for side in sides[1:])
        if dim == SUMS:  # the last step of each group's sum is half full on average
            more = accelerator.kernel.k_step / 2
            each = rows_visited(float(k), tile, groups) / groups if tile else k / groups + more
            b, k = b * groups, np.asarray(each)
        elif tile:
            m = np.asarray(rows_visited(float(m), tile, groups))
        else:
            rows = groups
        best = best_seconds(b, m, n, k, rates[where], accelerator, rows)
        stretched[where] = max(1.0, float(best / ideal)) / reached(dims, accelerator.kernel)
    return stretched


def _direct_rates(accelerator: Accelerator) -> Seconds:
    """FLOP/s of products on vector units by dtype code, shape [dtypes]; their sums are in f32."""
    without = replace(accelerator, matmul={})
    rates = rate_table(without)[Unit.MATMUL]
    sums: Seconds = np.minimum(rates, rates[DTYPES.index("f32")])
    return sums * accelerator.kernel.matmul_efficiency


def best_seconds(
    b: Seconds,
    m: Seconds,
    n: Seconds,
    k: Seconds,
    peak: Seconds,
    accelerator: Accelerator,
    groups: int = 1,
) -> Seconds:
    """Seconds of products with the fastest tile and cut, in the shape of the arguments.

    Args:
        b, m, n, k: their sizes.
        peak: FLOP/s.
        accelerator: the device.
        groups: number of groups of rows that begin new tiles (see ``flint.cost.grouped``).
    """
    model = accelerator.kernel
    best = np.full(np.shape(m), np.inf)
    # A product may be computed as its transpose: the wider side may be along either side of a tile.
    sides = {(t.m, t.n, t.efficiency) for t in model.tiles}
    sides |= {(t.n, t.m, t.efficiency) for t in model.tiles}
    for tm, tn, share in sorted(sides):
        down = np.ceil(m / tm)
        if groups > 1:
            down = np.maximum(down, tiles_down(m, tm, groups))
        for cut in _CUTS:
            steps = np.ceil(np.ceil(k / cut) / model.k_step) * model.k_step
            tiles = b * down * np.ceil(n / tn)
            waves = np.ceil(tiles * cut / model.units)
            each = 2 * tm * tn * steps * model.units / (peak * model.matmul_efficiency * share)
            partial = 0.0 if cut == 1 else cut * _PARTIAL * b * m * n
            seconds = waves * each + partial / accelerator.memory_bandwidth
            # The sum is cut to give every unit something to do, not to fill the last wave.
            allowed = (cut == 1) | (tiles < model.units)
            best = np.where(allowed, np.minimum(best, seconds), best)
    return best
