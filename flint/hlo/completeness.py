"""Whether a module is complete: detecting files that are cut between two fields.

The idea: protobuf cannot see a cut that falls between fields, and XLA writes a module's fields in
the order of their numbers (``HloModule::ToProto``): computations, then schedule, aliases, the
partitioner's shardings, devices, stack frames, frontend attributes, payloads.  So a field that XLA
writes into every module proves that all earlier ones are present; without it, present fields must
not refer to missing ones.

    lost(proto, metadata)           # "its table of stack frames, which instructions refer to"
    remarks(proto)                  # ["no schedule in the file: ..."]
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from flint.hlo import hlo_pb2 as pb

UNSCHEDULED = "no schedule in the file: the order of a compiled module's kernels is modelled"
VALUELESS = (
    "a constant without its value ({...} in HLO text): reduce-scatters, branches and trip counts "
    "that depend on it are not recognised; XLA_FLAGS=--xla_dump_large_constants or a proto keeps "
    "the values"
)
UNENDED = (
    "the file lacks the fields that XLA writes last (buffer donors, frontend attributes): either "
    "an XLA from before 2024 wrote it, or it was cut off and its devices and shardings are lost"
)


def lost(proto: pb.HloModuleProto, metadata: Iterable[bytes]) -> str | None:
    """What a module provably lacks; None if nothing.

    Args:
        proto: the module.
        metadata: serialised ``OpMetadata`` of its instructions.
    """
    if proto.HasField("frontend_attributes"):
        frames = True
    else:
        if _compiled(proto) and not proto.HasField("input_output_alias"):
            return "its input-output aliases, which XLA writes into every compiled module"
        stated = len(proto.spmd_parameters_shardings)
        wanted = len(proto.host_program_shape.parameters)
        ends_here = not proto.HasField("device_assignment")
        if proto.HasField("spmd_output_sharding") and ends_here and stated < wanted:
            return f"shardings: {stated} for {wanted} parameters"
        frames = proto.HasField("stack_frame_index")
    return _unresolved(metadata, frames, len(proto.payloads))


def remarks(proto: pb.HloModuleProto) -> list[str]:
    """Remarks on what may be missing, or is missing but not essential."""
    texts = []
    if _compiled(proto) and not proto.HasField("schedule"):
        texts.append(UNSCHEDULED)
    through_xla = _compiled(proto) or proto.HasField("input_output_alias")
    if through_xla and not proto.HasField("frontend_attributes"):
        texts.append(UNENDED)
    valueless = [
        VALUELESS
        for computation in proto.computations
        for instruction in computation.instructions
        if instruction.opcode == "constant" and not instruction.HasField("literal")
    ]
    return texts + valueless


def _compiled(proto: pb.HloModuleProto) -> bool:
    """Whether a backend has compiled it and XLA wrote the file: both leave marks.

    Modules from XlaBuilder have neither fusions nor a schedule; modules from other writers have no
    program shape.
    """
    if not proto.HasField("host_program_shape"):
        return False
    return proto.HasField("schedule") or any(
        computation.is_fusion_computation for computation in proto.computations
    )


def _unresolved(metadata: Iterable[bytes], frames: bool, payloads: int) -> str | None:
    for serialised in metadata:
        try:
            parsed = pb.OpMetadata.FromString(serialised)
        except DecodeError:  # a damaged name is no reason to refuse the module
            continue
        if parsed.stack_frame_id and not frames:
            return "its table of stack frames, which instructions refer to"
        payload = parsed.metadata_payload
        if payload.WhichOneof("data") == "id" and payload.id >= payloads:
            return f"payload {payload.id}, which instructions refer to"
    return None
