"""HLO text as PyTorch/XLA dumps it: tokens of collectives, calls without an interface version."""

from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text
from flint.stablehlo.walker import walk

#: Shaped like the programs of two ranks that torch_neuronx dumps.  Every collective takes and gives
#: a scalar that orders it after the one before (``xm.all_reduce`` of torch_xla's xla_model.py).
TEXT = b"""HloModule SyncTensorsGraph.9, replica_count=2

%Add.1 (x.1: bf16[], y.1: bf16[]) -> bf16[] {
  %x.1 = bf16[] parameter(0)
  %y.1 = bf16[] parameter(1)
  ROOT %add.1 = bf16[] add(bf16[] %x.1, bf16[] %y.1)
}

ENTRY %SyncTensorsGraph.9 (p0.1: bf16[24,32], p1.1: bf16[]) -> (bf16[24,32], bf16[]) {
  %p0.1 = bf16[24,32]{1,0} parameter(0)
  %p1.1 = bf16[] parameter(1)
  %gelu = bf16[24,32]{1,0} custom-call(bf16[24,32]{1,0} %p0.1),
    custom_call_target="AwsNeuronGelu", api_version=API_VERSION_UNSPECIFIED, metadata={op_type="g"}
  %rs.1 = (bf16[12,32]{1,0}, bf16[]) reduce-scatter(bf16[24,32]{1,0} %gelu, bf16[] %p1.1),
    replica_groups={{0,1}}, dimensions={0}, to_apply=%Add.1
  %part = bf16[12,32]{1,0} get-tuple-element((bf16[12,32]{1,0}, bf16[]) %rs.1), index=0
  %ordered = bf16[] get-tuple-element((bf16[12,32]{1,0}, bf16[]) %rs.1), index=1
  %all-gather.1 = (bf16[24,32]{1,0}, bf16[]) all-gather(bf16[12,32]{1,0} %part, bf16[] %ordered),
    replica_groups={{0,1}}, dimensions={0}
  %whole = bf16[24,32]{1,0} get-tuple-element((bf16[24,32]{1,0}, bf16[]) %all-gather.1), index=0
  %after = bf16[] get-tuple-element((bf16[24,32]{1,0}, bf16[]) %all-gather.1), index=1
  ROOT %tuple = (bf16[24,32]{1,0}, bf16[]) tuple(%whole, %after)
}
"""


def test_collectives_with_a_token_are_read_with_their_groups_and_bytes() -> None:
    graph = walk(read_hlo(proto_of_text(TEXT))).graph
    sent = [
        (item.kind, item.operand_bytes, item.result_bytes) for item in graph.tables.communications
    ]
    part, whole, token = 12 * 32 * 2, 24 * 32 * 2, 2  # bf16
    assert sent == [
        ("reduce_scatter", (whole, token), (part, token)),
        ("all_gather", (part, token), (whole, token)),
    ]


def test_a_custom_call_without_an_interface_version_is_read() -> None:
    [op] = [op for op in read_hlo(proto_of_text(TEXT)).functions["main"].ops if op.attr("target")]
    assert op.attr("target") == "AwsNeuronGelu"
