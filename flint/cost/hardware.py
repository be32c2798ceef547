"""Hardware: what a cost model needs to know about a device, a network and a cluster of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from flint.cost.description import Stated

#: Classes of kernels that can have a curve (from ``flint.cost.classes.KERNELS``).
CURVED: Final = ("matmul", "reduction", "elementwise", "movement")
#: What stays in the cells of a systolic array: outputs, weights or inputs.
DATAFLOWS: Final = ("os", "ws", "is")


@dataclass(frozen=True, slots=True)
class Tile:
    """An output tile that one unit computes at a time.

    Attributes:
        m, n: its size.
        efficiency: of the unit's attainable rate, between 0 and 1.
    """

    m: int
    n: int
    efficiency: float


@dataclass(frozen=True, slots=True)
class AttentionShare:
    """Shares of the peak that fused attention reaches, forward and backward, by head size and
    length of the sequences."""

    head: int
    length: int
    forward: float
    backward: float


@dataclass(frozen=True, slots=True)
class KernelModel:
    """Parameters that turn peaks into times of kernels (see ``flint.cost.kernels``).

    Attributes:
        units: number of units that share the tiles: streaming multiprocessors or matrix units.
        tiles: tile sizes that kernels use.
        k_step: the sum over k advances in steps of this.
        matmul_efficiency, memory_efficiency: attainable share of the peaks, at most 1.
        latency: seconds until a kernel's first results, whatever its size.
        attention_efficiency: share of a matrix product's rate that fused attention reaches, at most
            1.
        flash_attention_efficiency: the same for the kernels that come with PyTorch, of which the
            first is FlashAttention 2; equal by default.
        eager_attention_efficiency: the same in steps that no compiler has changed; equal to that
            by default.
        efficient_attention_efficiency: the same in 16 bits for PyTorch's memory-efficient kernel,
            in any step; equal to ``flash_attention_efficiency`` by default.
        narrow_attention_efficiency: the same for attention whose products are in 8 bits, of a
            product's rate in that type: softmax is as slow as in 16.  Equal by default.
        beside_communication: speed of kernels while the device communicates, at most 1.
        beside_copies: the same while only parts of exchanges are on their way, which copy engines
            send; equal by default.
        grouped_rows: rows of a grouped product's tile if groups follow each other within tiles; 0:
            each group begins a new tile, from those above.
        grouped_columns: columns, and steps of the sum, of such a tile; 0: of any width.
        grouped_efficiency: share of a product's rate that grouped products reach.
        grouped_unaligned: share of that which they reach if a matrix has a side that is no multiple
            of 128, the lanes of a TPU's registers.
        gather_index: seconds of an index of a gather, at least; 0: not known.
        attention_block: queries and keys of a block of fused attention, of which kernels skip those
            that a causal mask hides whole; 0: nothing hidden is computed.
        attention_masked: how much longer such a block takes in a kernel with a mask, at least 1.
        attention_head_step: elements of a head that fused attention computes at once, in sums and
            in columns of results; 0: what products of that size take.
        matmul_alone: the share of the peaks that products of matrices reach where nothing
            communicates; 0: not known.  ``matmul_efficiency`` is fitted to whole steps of many
            devices, all of whose other kernels are taken to be at the memory's bandwidth.
        unaligned: the share of that rate which products reach whose operands or results do not
            begin each row at 16 bytes, in PyTorch's programs.
        attention_alone: shares of the peak that cuDNN's fused attention reaches there.
        attention_causal: queries and keys of a block of it, which a causal mask hides whole or not
            at all; 0: half of the scores are computed.
        alone: whether kernels whose loops are slower than their bytes count as such.
    """

    units: int
    tiles: tuple[Tile, ...]
    k_step: int
    matmul_efficiency: float
    memory_efficiency: float
    latency: float
    attention_efficiency: float = 1.0
    flash_attention_efficiency: float = 1.0
    eager_attention_efficiency: float = 1.0
    efficient_attention_efficiency: float = 1.0
    narrow_attention_efficiency: float = 1.0
    beside_communication: float = 1.0
    beside_copies: float = 1.0
    grouped_rows: int = 0
    grouped_columns: int = 0
    grouped_efficiency: float = 1.0
    grouped_unaligned: float = 1.0
    gather_index: float = 0.0
    attention_block: int = 0
    attention_masked: float = 1.0
    attention_head_step: int = 0
    matmul_alone: float = 0.0
    unaligned: float = 1.0
    attention_alone: tuple[AttentionShare, ...] = ()
    attention_causal: int = 0
    alone: bool = False

    def on_one_device(self) -> KernelModel:
        """The model for a program of one device, if it is known how kernels alone do there."""
        return replace(self, alone=self.matmul_alone > 0)


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured time of kernels of one class and type (see ``flint.cost.curves``).

    Attributes:
        kernel: their class.
        dtype: their element type, or "any".
        latency: seconds of the smallest kernel.
        bandwidth: bytes per second.
        efficiency: share of the peak that their products reach, without ``latency``.
        overlap: exponent p; 1 if loading and computing follow each other.
        layout: rows and lanes of the tiles that memory is laid out in; (1, 1): none.
        error: median error on held-out kernels; 0 if unknown.
    """

    kernel: str
    dtype: str
    latency: float
    bandwidth: float
    efficiency: float = 1.0
    overlap: float = 1.0
    layout: tuple[int, int] = (1, 1)
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Scratchpads:
    """The SRAMs of a systolic array: half of each is filled while the other half is used.

    Attributes:
        ifmap, filter, ofmap: bytes for inputs, weights and outputs.
        bandwidth: bytes per second between memory and each of the three.
    """

    ifmap: int
    filter: int
    ofmap: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class SystolicArray:
    """The matrix units of a device, as SCALE-Sim describes them (see ``flint.cost.systolic``).

    Attributes:
        rows, columns: cells of one array.
        arrays: how many there are.
        clock: cycles per second.
        dataflow: one of ``DATAFLOWS``.
        memory: SRAMs of all arrays together; None: operands arrive in time, as far as the device's
            memory bandwidth allows.
    """

    rows: int
    columns: int
    arrays: int
    clock: float
    dataflow: str
    memory: Scratchpads | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device.

    Attributes:
        name: product name.
        memory_bytes: capacity.
        memory_bandwidth: bytes per second.
        launch_overhead: seconds that every kernel takes in addition to its work.
        transcendental: function evaluations per second.
        matmul: FLOP/s of matrix units by element type.
        vector: FLOP/s of vector units by element type.
        kernel: parameters that keep kernels below the peaks.
        efficiency: share of ``kernel.matmul_efficiency`` that products of a type reach, by the
            type's name in ``matmul``; types that are not listed reach all of it.
        systolic: its matrix units as systolic arrays, if described.
        curves: curves of measured classes of kernels; they take precedence over ``kernel``.
        host_bandwidth: bytes per second and direction between its memory and the host's; 0 if not
            given.
        stated: every figure as written, with its source.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    launch_overhead: float
    transcendental: float
    matmul: Mapping[str, float]
    vector: Mapping[str, float]
    kernel: KernelModel
    efficiency: Mapping[str, float] = field(default_factory=dict)
    systolic: SystolicArray | None = None
    curves: tuple[Curve, ...] = ()
    host_bandwidth: float = 0.0
    stated: tuple[Stated, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of the network, as a device sees it.

    Attributes:
        name: what it is.
        size: number of devices reached through it; 0 for any number.
        topology: one of ``TOPOLOGIES``.
        bandwidth: bytes per second and direction, per device; for a Ring, per link. For a
            FullyConnected, the device's links share it: one to each other device or, above a
            smaller tier, to the device with the same place in each other node.
        latency: seconds per message.
        efficiency: attainable share of the bandwidth, at most 1.
        rings: for a Ring, the dims of the torus: a device has two links in each dim, above a
            smaller tier to the devices with its place in the neighbouring nodes.
        algorithms: how collectives can run on it.
        closed: for a Ring: a dim of the torus is closed to a ring if its size is a multiple of
            this, else it is an open row.
        oversubscription: for a Switch: total bandwidth of the devices that share an uplink, divided
            by that of the uplink; 1 if all can send at the same time at full rate.
        beside_communication: speed of kernels while the device communicates up to this tier; 0 for
            the accelerator's value.
    """

    name: str
    size: int
    topology: str
    bandwidth: float
    latency: float
    efficiency: float = 1.0
    rings: int = 1
    algorithms: tuple[str, ...] = ("ring",)
    closed: int = 1
    oversubscription: float = 1.0
    ports: str = "own"
    protocols: tuple[tuple[float, float], ...] = ()
    beside_communication: float = 0.0

    @property
    def rate(self) -> float:
        """Bytes per second that a device (for a Ring, a link) sends while all others send too."""
        return self.bandwidth * self.efficiency / self.oversubscription

    def by_protocol(self, number: int) -> Tier:
        """The tier with one of its protocols; as described if the number is 0 or too large."""
        if not 0 < number <= len(self.protocols):
            return self
        latency, share = self.protocols[number - 1]
        return replace(self, latency=latency, efficiency=self.efficiency * share)


@dataclass(frozen=True, slots=True)
class System:
    """A cluster.

    Attributes:
        name: short name.
        description: one line.
        accelerator: the device.
        network: tiers, innermost first; the last one reaches all devices.
        stated: the network's figures as written, with their sources.
        without: parts that were left out of it (see ``flint.cost.simplified``).
    """

    name: str
    description: str
    accelerator: Accelerator
    network: tuple[Tier, ...]
    stated: tuple[Stated, ...] = field(default=(), compare=False)
    without: tuple[str, ...] = ()

    def tier(self, span: int) -> Tier:
        """The innermost tier that reaches ``span`` consecutive devices."""
        return next(tier for tier in self.network if tier.size == 0 or tier.size >= span)
