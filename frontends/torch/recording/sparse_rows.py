"""Sparse tensors of rows: the gradients of ``nn.Embedding(sparse=True)`` and what optimizers make.

The idea: a fake tensor cannot be sparse.  Such a tensor is two dense ones: which rows of a table it
has, and their values.  Here it is a tensor subclass that holds these two and answers as a sparse
tensor.  Ops on it are the ops on its two parts that a GPU's kernels do
(aten/src/ATen/native/sparse/cuda), and these are recorded.

How many rows remain when equal ones are added up (``coalesce``) depends on values: it is counted
where the indices are known; otherwise every index is assumed to differ, as far as there are rows.

    rows_of(torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default, args, kwargs)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.errors import FlintError
from flint.frontends.torch.cluster.device import current_stream, timeline
from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import known_of
from flint.frontends.torch.user_lines import at_user_line

_aten = torch.ops.aten

#: The op that puts the parts of a sparse tensor together.
MADE = _aten._sparse_coo_tensor_with_dims_and_tensors.default
#: The op of a bag's gradient, which is sparse if its argument at this place says so.
_BAG, _BAG_IS_SPARSE = _aten._embedding_bag_backward.default, 9
#: PyTorch's number of the means of bags.
_MEAN = 1


def rows_of(values: Any, op: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """The tensor that ``MADE`` makes of indices [1, n] and values [n, ...].

    Raises:
        FlintError: it has indices for several dims.
    """
    sparse_dims, _, size, indices, rows = args[:5]
    if sparse_dims != 1:
        raise FlintError(
            f"a sparse tensor{at_user_line()} has indices for {sparse_dims} dims: how many of its "
            "elements remain after an op depends on values, and a captured step has none; use "
            "dense tensors, or indices with index_select and index_add"
        )
    return SparseRows(indices, rows, size, bool(kwargs.get("is_coalesced")))


def sparse_bags(op: Any, args: Any, kwargs: Any) -> Callable[..., torch.Tensor] | None:
    """What the sparse gradient of bags consists of; None for other ops."""
    return _sparse_bags if op is _BAG and args[_BAG_IS_SPARSE] else None


def _sparse_bags(
    grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, offset2bag: torch.Tensor,
    bag_size: torch.Tensor, _: Any, num_weights: int, by_freq: bool, mode: int, __: bool,
    per_sample_weights: torch.Tensor | None = None, padding_idx: int = -1,
) -> torch.Tensor:  # fmt: skip
    """The rows of a table [num_weights, width] that bags with a gradient [bags, width] have."""
    rows = grad.index_select(0, offset2bag)
    if mode == _MEAN:
        count = _aten._to_copy(bag_size, dtype=grad.dtype)
        rows.mul_(count.reciprocal().unsqueeze(1).index_select(0, offset2bag))
    if per_sample_weights is not None:
        rows.mul_(per_sample_weights.unsqueeze(1))
    if padding_idx >= 0:
        kept = indices != padding_idx
        indices, rows = indices[kept], rows[kept]
    return SparseRows(indices, rows, (num_weights, grad.shape[1]))


class SparseRows(torch.Tensor):
    """A tensor [rows, ...] of which only some rows are there.

    Attributes:
        places: indices of its rows, int64 [n].
        rows: their values, [n, ...].
        once: no row is there twice (it is coalesced).
    """

    places: torch.Tensor
    rows: torch.Tensor
    once: bool

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, indices: torch.Tensor, rows: torch.Tensor, size: Any, once: bool = False
    ) -> SparseRows:
        """``indices`` [1, n] or [n]."""
        make: Any = torch.Tensor._make_wrapper_subclass
        made: SparseRows = make(cls, size, dtype=rows.dtype, device=rows.device)
        made.places, made.rows, made.once = indices.reshape(-1), rows, once
        return made

    def __init__(self, *_: Any) -> None:
        """All is done in ``__new__``."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        rule = _RULES.get(op)
        result = None if rule is None else rule(*args, **(kwargs or {}))
        if result is None:
            _refuse(str(op))
        return result

    # What programs and optimizers ask of a sparse tensor.

    is_sparse = property(lambda _: True)
    layout = property(lambda _: torch.sparse_coo)

    def _indices(self) -> torch.Tensor:
        return self.places.reshape(1, -1)

    def _values(self) -> torch.Tensor:
        return self.rows

    def indices(self) -> torch.Tensor:
        """Where its rows are, int64 [1, n]; it must be coalesced."""
        return self._checked()._indices()

    def values(self) -> torch.Tensor:
        """Its rows [n, ...]; it must be coalesced."""
        return self._checked().rows

    def _checked(self) -> SparseRows:
        if not self.once:
            raise RuntimeError("a sparse tensor is not coalesced: call .coalesce() first")
        return self

    def _nnz(self) -> int:
        return self.places.shape[0]

    def sparse_dim(self) -> int:
        """Of how many dims it has indices."""
        return 1

    def dense_dim(self) -> int:
        """How many dims its rows have."""
        return self.dim() - 1

    def is_coalesced(self) -> bool:
        """Whether no row is there twice."""
        return self.once

    def new(self, *parts: Any) -> torch.Tensor:  # type: ignore[override]
        """A sparse tensor of indices, values and a size."""
        if len(parts) != 3:
            _refuse("Tensor.new")
        return SparseRows(*parts)

    def to_dense(self, *_: Any, **__: Any) -> torch.Tensor:
        """The whole table, with zeros elsewhere."""
        whole = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        return whole.index_add_(0, self.places, self.rows)

    def coalesce(self) -> torch.Tensor:
        """The same with each row once: sorted by index, equal ones added up."""
        if self.once or self._nnz() < 2:
            return SparseRows(self.places, self.rows, self.shape, True)
        count = _different(self.places, self.shape[0])
        places, order = torch.sort(self.places)
        timeline().host_wait(timeline().moment(current_stream().stream_id))
        if count == self._nnz():
            return SparseRows(places, self.rows.index_select(0, order), self.shape, True)
        begins = torch.cat((torch.zeros_like(places[:1]), (places[1:] != places[:-1]).long()))
        segment = begins.cumsum(0)
        kept = torch.zeros(count, dtype=torch.int64, device=self.device)
        kept = kept.scatter_(0, segment, places)
        sums = torch.zeros(
            (count, *self.rows.shape[1:]), dtype=self.dtype, device=self.device
        ).index_add_(0, segment, self.rows.index_select(0, order))
        return SparseRows(kept, sums, self.shape, True)


def _different(places: torch.Tensor, most: int) -> int:
    """How many of some indices [n] of ``most`` rows differ, at most."""
    known = known_of(capture().known_values, places)
    if known is not None:
        with unset_fake_temporarily():
            return len(set(known.value.tolist()))
    count = min(places.shape[0], most)
    capture().assume(
        f"rows of a sparse gradient are added up{at_user_line()}: {places.shape[0]} indices of "
        f"{most} rows are assumed to be {count} different ones, an upper bound"
    )
    return count


def _refuse(what: str) -> NoReturn:
    raise FlintError(
        f"{what}{at_user_line()} takes a sparse gradient: only its sum, its coalesced rows and the "
        "updates of SGD without momentum, SparseAdam and Adagrad are captured; use sparse=False"
    )


def _like(self: SparseRows, rows: torch.Tensor, once: bool | None = None) -> SparseRows:
    return SparseRows(self.places, rows, self.shape, self.once if once is None else once)


def _scaled(op: Any) -> Callable[..., Any]:
    """An op on each value that leaves zeros as they are."""

    def act(self: Any, *others: Any, **kwargs: Any) -> Any:
        if any(isinstance(item, torch.Tensor) and item.dim() for item in others):
            return None
        return _like(self, op(self.rows, *others, **kwargs)) if _is_sparse(self) else None

    return act


def _add(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Two sparse tensors: their rows, one after the other."""
    if not (_is_sparse(self) and _is_sparse(other)):
        return None
    rows = other.rows if alpha == 1 else other.rows * alpha
    places = torch.cat((self.places, other.places))
    return SparseRows(places, torch.cat((self.rows, rows)), self.shape)


def _add_in_place(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """To a dense tensor, its rows; PyTorch coalesces a sum that has more rows than the table."""
    if not _is_sparse(self):
        return self.index_add_(0, other.places, other.rows, alpha=alpha)
    total = _add(self, other, alpha=alpha)
    if total is None:
        return None
    if total.rows.numel() > total.numel():
        total = total.coalesce()
    self.places, self.rows, self.once = total.places, total.rows, total.once
    return self


def _mask(self: Any, mask: Any) -> Any:
    """A dense tensor's rows, at the places of a sparse one; PyTorch multiplies them by ones."""
    if _is_sparse(self):
        return None
    ones = torch.ones(1, dtype=self.dtype, device=self.device).expand(mask.rows.shape)
    return _like(mask, self.index_select(0, mask.places) * ones)


def _is_sparse(item: Any) -> bool:
    return isinstance(item, SparseRows)


#: Op on a sparse tensor -> the op on its parts; None of it where it is not captured.
_RULES: Mapping[Any, Callable[..., Any]] = {
    _aten.detach.default: lambda self: _like(self, self.rows),
    _aten.alias.default: lambda self: _like(self, self.rows),
    _aten.clone.default: lambda self, **_: SparseRows(
        self.places.clone(), self.rows.clone(), self.shape, self.once
    ),
    **{op: _scaled(op) for op in (
        _aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.div.Scalar, _aten.neg.default,
        _aten._to_copy.default,
    )},
    _aten.add.Tensor: _add,
    _aten.add_.Tensor: _add_in_place,
    _aten.sparse_mask.default: _mask,
}  # fmt: skip
