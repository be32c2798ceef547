"""Saved programs -> op records: StableHLO and HLO in every form that frameworks and XLA write.

The idea: gzip and what ``jax.export`` serialises are opened, the content shows the kind, and each
form has a reader; for a file of another kind the error names the kind.  MLIR and XLA may end this
process on a damaged file: ``reading.py`` runs them in another one.

    parse(data, "model.mlirbc")          # MLIR bytecode, MLIR text, a portable artifact (VHLO),
    parse(data, "step.hlo.pb.gz")        # HloProto, HloModuleProto, HLO text
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flint.errors import FlintError, UsageError
from flint.frontends.saved.kinds import Kind, advice
from flint.frontends.saved.wrappers import opened
from flint.stablehlo.read.records import Module

#: The limit of unpacked gzip data, bytes.
MAX_BYTES = 8 << 30
_MLIR = (Kind.MLIR_BYTECODE, Kind.VHLO, Kind.MLIR_TEXT)


def parse(
    data: bytes,
    name: str = "<module>",
    entry: str | None = None,
    limit: int = MAX_BYTES,
    advice: str = "",
) -> Module:
    """Read a saved program into op records.

    Args:
        data: a file's content, possibly in gzip or serialised by ``jax.export``.
        name: its name in errors.
        entry: function to start from, for MLIR modules; default ``main``, else the only public one.
        limit: the most bytes of unpacked gzip data.
        advice: what to do about more, as the end of a sentence.

    Raises:
        UsageError: an entry for an HLO module, which has exactly one.
        FlintError: no module, or a damaged one.
    """
    data, kind = opened(data, name, limit, advice)
    try:
        return _records(data, kind, name, entry)
    except UnicodeDecodeError:
        raise FlintError(f"{name}: damaged: a string in it is not UTF-8") from None
    except RecursionError:
        raise FlintError(f"{name}: types, attributes or regions are nested too deeply") from None
    except RuntimeError as error:
        if "str_from_cstr_and_size" not in str(error):  # the same error from the bindings
            raise
        raise FlintError(f"{name}: damaged: a string in it is not UTF-8") from None


def sized(
    data: bytes,
    shapes: Mapping[str, Sequence[int]],
    name: str = "<module>",
    entry: str | None = None,
    limit: int = MAX_BYTES,
    advice: str = "",
) -> bytes:
    """A saved program with sizes for its arguments, as MLIR bytecode.

    Args:
        data, name, entry, limit, advice: as for ``parse``.
        shapes: argument, by number or name -> its dims.

    Raises:
        UsageError: HLO, or sizes that do not fit.
        FlintError: no module, or a damaged one.
    """
    data, kind = opened(data, name, limit, advice)
    if kind not in _MLIR:
        raise UsageError(f"{name}: this is {kind.value}; --shape is for StableHLO")
    from flint.stablehlo.read.open_sizes import with_sizes

    return with_sizes(data, shapes, name, entry)


def _records(data: bytes, kind: Kind, name: str, entry: str | None) -> Module:
    if kind in _MLIR:
        from flint.stablehlo.read.reader import read_mlir

        return read_mlir(data, name, entry)
    if kind in (Kind.HLO_PROTO, Kind.HLO_MODULE_PROTO, Kind.HLO_TEXT):
        from flint.hlo.reader import read_hlo

        if entry is not None:
            raise UsageError(f"{name}: an HLO module has one entry; --entry is for MLIR")
        if kind is Kind.HLO_TEXT:
            from flint.hlo.text import proto_of_text

            data = proto_of_text(data, name)
        return read_hlo(data, name)
    raise FlintError(f"{name}: this is {kind.value}; {advice(kind)}")
