"""What differs from the runs of PyTorch as our models have them, beside the columns of their rows.

first(DIFFERS, recipe.id, "")      # of ``trainers.py``: the entry of the longest beginning
"""

from __future__ import annotations

from collections.abc import Mapping

_STAGE = "one rank of the pipeline, with both ends, and its bubbles; no exchanges between ranks"
_GPT = "a gated network of as many FLOPs; rotary positions, RMS norms, no biases"
#: Beginning of an id -> what differs from the run, in addition to the columns.
DIFFERS: Mapping[str, str] = {
    "tt-gb200": "loss not in chunks",
    "tt-h100-dsv3": "loads balanced; scores of the whole sequence",
    "tt-gb300-dsv3": "loads balanced; scores of the whole sequence",
    "rlprime-q30b": "the optimizer counts twice",
    "prl-": "the optimizer counts twice",
    "lf-": "embedding and head are two matrices",
    "tune-": "scores of whole sequences, not of packed samples",
    "me-": "ZeRO-2 as FSDP that keeps gathered parameters",
    "ca-7b": "ZeRO-2 as FSDP that keeps gathered parameters",
    "ca-70b": "parameters sharded, too",
    "mlp-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "m51-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "m6-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "m6-gb300-405b": f"{_STAGE}",
    "te-mi300x": "Transformer Engine's fused kernels as what torch.compile fuses",
    "ao-gb200-scout": "the shared expert as a wider dense network",
    "ie-": "eight samples of 2,048 packed; optimizer and parameters sharded in a node",
    "kf-": "experts in one parameter; no padding to the busiest; no loss that balances",
    "bionemo-gb300": "36 GPUs in one NVLink domain; context parallelism as PyTorch runs it",
    "bionemo-og2": "sequences are not packed: scores of the whole sequence",
    "nanotron": "embedding and head are two matrices; vocabulary padded to 50260",
    "nanochat": "AdamW, not Muon; SwiGLU of as many FLOPs, not relu^2; "
    "no value embeddings, no norm of queries and keys",
    "primus-mi325x-70b": "accumulation and checkpointing are not published: 1, and all blocks",
    "primus-mi325x-8b": "accumulation and checkpointing are not published: 8, and none",
    "mlm-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "nemo-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "ao-b200-scout2l": "the shared expert as a wider dense network",
    "primus-mi355x-qwen30b": "no blocks checkpointed; no norm of queries and keys",
    "ml4-h100-gpt3": f"{_STAGE}; {_GPT}",
    "ml4-b200-gpt3": f"{_STAGE}; {_GPT}; the network between nodes is not published",
    "ml5-h200-405b": f"{_STAGE}; 16 layers",
    "mg-7b-pp4": "no dropout; attention not deterministic",
    "mg-7b-tp4": f"sequence parallelism, which the run has not; {_GPT}; no dropout; attention not "
    "deterministic",
    "bs-": f"{_STAGE}; {_GPT}; sequence parallelism, which the run has not; Omni-Path as "
    "InfiniBand",
    "tt-aws-": "elastic fabric adapters as InfiniBand",
    "lg-": "FSDP2, not FSDP1; keys are not copied for each head",
    "fs-": "no loading of data",
    "trl-": "inputs of the layers stay on the device; no norm of queries and keys",
    "sw-7b-16k": "ZeRO-3 as FSDP2; scores of whole sequences, not of packed documents; no biases",
    "a100-fastdit": "a loss of the noise alone, not scaled; memory of the A100: 80 GB",
}
#: Why a row's memory is unknown, by the beginnings of ids.
NO_MEMORY: Mapping[str, str] = {
    "tt-gb200": "loss in chunks keeps less",
    "nanochat": "Muon keeps less than AdamW",
    "ml5-h200-405b": "more than one microbatch is kept",
    "ml4-": "more than one microbatch is kept",
    "bs-": "more than one microbatch is kept",
    "m6-": "what is kept is partly in f8",
    "mg-7b-pp4": "the first rank's is published, not the largest",
    "mg-7b-tp4": "without sequence parallelism, residual streams are kept whole",
    "trl-": "inputs of the layers are on the host",
}
