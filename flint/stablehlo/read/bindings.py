"""The only module that imports jaxlib's MLIR bindings.

The idea: everything that depends on jaxlib's Python bindings for StableHLO, CHLO, MHLO and Shardy
is imported here (without importing jax, which would cost half a second) and version-checked.  Known
to work: jaxlib 0.8.3 to 0.12.0.

    module = parse(open("model.mlirbc", "rb").read(), "model.mlirbc")
    module.operation.name        # "builtin.module"
"""

from __future__ import annotations

import functools
import io
from typing import Any

from flint.errors import FlintError

KNOWN_VERSIONS = "jaxlib 0.8.3 to 0.12.0"

try:
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo
except ImportError as error:  # pragma: no cover - depends on the installation
    raise FlintError(
        f"jaxlib's MLIR bindings cannot be imported ({error}); known to work: {KNOWN_VERSIONS}"
    ) from error

__all__ = [
    "KNOWN_VERSIONS",
    "attribute_text",
    "chlo",
    "ir",
    "location_kind",
    "make_context",
    "parse",
    "sdy",
    "stablehlo",
]

#: VHLO portable artifacts are MLIR bytecode whose producer string starts with this.
_VHLO_PRODUCER = "StableHLO_v"
BYTECODE_MAGIC = b"ML\xefR"
#: A pass that needs the dialect of quantised types; running one is the only way to load it.
_DROPS_LOCATIONS = "builtin.module(strip-debuginfo)"
_LOADS_QUANT = "builtin.module(vhlo-legalize-to-stablehlo)"


#: Kind of a location -> its class, and the method that tests for it in jaxlib before 0.10.
_LOCATIONS = {
    "name": ("NameLoc", "is_a_name"),
    "file": ("FileLineColLoc", "is_a_file"),
    "call": ("CallSiteLoc", "is_a_callsite"),
    "fused": ("FusedLoc", "is_a_fused"),
}


def location_kind(location: Any) -> str:
    """What an ``ir.Location`` says: "name", "file", "call", "fused", or "" where it is unknown."""
    for kind, (name, method) in _LOCATIONS.items():
        found = getattr(ir, name, None)
        if isinstance(location, found) if found is not None else getattr(location, method)():
            return kind
    return ""


@functools.cache
def _registry() -> Any:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    return registry


def make_context() -> Any:
    """A context with the dialects that StableHLO modules of JAX, PyTorch and XLA use."""
    context = ir.Context()
    # A module's other dialects are loaded when their first op is read: all of them take 3 ms.
    context.append_dialect_registry(_registry())
    context.get_dialect_descriptor("func")
    # Ops of unknown dialects become nodes with a warning instead of parse errors.
    context.allow_unregistered_dialects = True
    # Its threads are not needed, and processes with threads do not fork well.
    context.enable_multithreading(False)
    for register in (
        sdy.register_dialect,
        mhlo.register_mhlo_dialect,
        chlo.register_dialect,
        stablehlo.register_dialect,
    ):
        register(context)
    return context


def parse(data: bytes, name: str = "<module>") -> Any:
    """Parse MLIR text, MLIR bytecode or a VHLO portable artifact.

    Args:
        data: the module's bytes.
        name: file name for the error.

    Returns:
        An ``ir.Module``; its context stays alive with it.

    Raises:
        FlintError: the bytes are not a module that the installed jaxlib can read.
    """
    context = make_context()
    try:
        if b"quant" in data:
            _load_quantised_types(context)
        if _producer(data).startswith(_VHLO_PRODUCER):
            return stablehlo.deserialize_portable_artifact(context, data)
        source = data if data[:4] == BYTECODE_MAGIC else data.decode("utf-8")
        module = ir.Module.parse(source, context)
        # The portable artifacts of early 2023 do not say that they are.
        if any(view.operation.name.startswith("vhlo.") for view in module.body.operations):
            return stablehlo.deserialize_portable_artifact(context, data)
        return module
    except UnicodeDecodeError as error:
        raise FlintError(f"{name}: neither MLIR bytecode nor UTF-8 MLIR text ({error})") from error
    except ir.MLIRError as error:
        first = _first_diagnostic(error).replace('"-":', "line ")
        raise FlintError(f"{name}: {_refusal(data, first)}") from error
    except Exception as error:
        # Bindings report some malformed bytecode as plain exceptions of several types.
        first = (str(error).splitlines() or ["no message"])[0]
        raise FlintError(f"{name}: {_refusal(data, first)}") from error


def refined(module: Any, arguments: str) -> bytes:
    """The bytecode of a module in which all sizes follow from those of the arguments.

    Args:
        module: an ``ir.Module``, which changes.
        arguments: the types of its entry's arguments, as MLIR writes them.

    Raises:
        FlintError: sizes do not fit, or remain open; the text is the reason.
    """
    from jaxlib._jax import mlir as xla

    stablehlo.register_stablehlo_passes()
    try:
        with module.context:
            passes = f"builtin.module(stablehlo-refine-arguments{{types={arguments}}})"
            passmanager.PassManager.parse(passes).run(module.operation)
        file = io.BytesIO()
        module.operation.write_bytecode(file)
        return bytes(xla.refine_polymorphic_shapes(file.getvalue(), True, True))
    except ir.MLIRError as error:
        raise FlintError(_first_diagnostic(error)) from error
    except Exception as error:  # of the class of XLA's bindings
        lines = str(error).splitlines() or ["no message"]
        raise FlintError(next((line for line in lines if " error: " in line), lines[0])) from error


def without_locations(data: bytes) -> bytes:
    """A module's bytecode without where its ops come from: equal for equal programs."""
    module = parse(data)
    with module.context:
        passmanager.PassManager.parse(_DROPS_LOCATIONS).run(module.operation)
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


def _refusal(data: bytes, why: str) -> str:
    """Why a module cannot be parsed, and what to do if another version has written it."""
    writer, here = _producer(data), _producer(_empty_bytecode())
    if writer.startswith(_VHLO_PRODUCER):
        return (
            f"a portable artifact that is damaged, or too new for the installed jaxlib ({writer}; "
            f"its own is {_VHLO_PRODUCER}{stablehlo.get_current_version()}): {why}"
        )
    if writer in ("", here):
        return f"not a valid MLIR module: {why}"
    return (
        f"{writer} has written this bytecode, and the installed jaxlib ({here}) cannot read it "
        f"({why}): bytecode is for one version of MLIR; save the program as MLIR text, as a "
        "portable artifact (stablehlo.serialize_portable_artifact) or as an HLO proto"
    )


def _producer(data: bytes) -> str:
    """The version that has written some bytecode, after the magic and a byte; "" for other data."""
    if data[:4] != BYTECODE_MAGIC:
        return ""
    return data[5:69].partition(b"\0")[0].decode("ascii", "replace")


def _empty_bytecode() -> bytes:
    file = io.BytesIO()
    with make_context():
        ir.Module.parse("module {}").operation.write_bytecode(file)
    return file.getvalue()


def _load_quantised_types(context: Any) -> None:
    """Register ``!quant.uniform`` as a type: StableHLO's ops refuse unknown types."""
    stablehlo.register_stablehlo_passes()
    with context:
        passes = passmanager.PassManager.parse(_LOADS_QUANT)
        passes.run(ir.Module.parse("module {}").operation)


def _first_diagnostic(error: Any) -> str:
    diagnostics = getattr(error, "error_diagnostics", None) or []
    if not diagnostics:
        return (str(error).splitlines() or ["no message"])[0]
    first = diagnostics[0]
    where = str(first.location).removeprefix("loc(").removesuffix(")")
    message = str(first.message).splitlines()[0]
    return f"{message} (at {where})" if where != "unknown" else message


def attribute_text(attribute: Any) -> str:
    """A string attribute's value, or any other attribute's MLIR text.

    Raises:
        UnicodeDecodeError: the string is not text, which bytecode allows.
    """
    if isinstance(attribute, ir.StringAttr):
        try:
            return str(attribute.value)
        except RuntimeError:  # of the binding, which does not say why
            return bytes(attribute.value_bytes).decode()
    return str(attribute)
