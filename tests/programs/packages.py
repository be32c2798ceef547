"""Programs of packages that are captured and really run: one table of each framework.

The idea: each of a package's ways to train is a row.  What it runs is a script of this folder, or a
package's own entry point, with its arguments.  Packages are in environments, which
``make test-programs`` makes from ``requirements/ENVIRONMENT.txt``; PyTorch itself is in Flint's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Program:
    """A program and how it is started.

    Attributes:
        package: the distribution that it exercises.
        environment: that has it.
        words: which of its ways to train.
        command: the program and its arguments.
        ranks: how many.
        options: of ``flint run``.
        real: options of ``observe.py``; what names GPUs gets CPUs.  Of a JAX program: what starts it.
        prepare: a script that makes what the program reads from its working folder.
        variables: of its environment.
        differs: what of the capture is known to differ from the real run.
    """

    package: str
    environment: str
    words: str
    command: tuple[str, ...]
    ranks: int = 2
    options: tuple[str, ...] = ()
    real: tuple[str, ...] = ("--cuda-is-cpu",)
    prepare: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    differs: str = ""

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.environment}: {self.package}, {self.words}"


def _rows(package, environment, script, *rows, always=(), **same):
    """Rows that share a script, or a module: (words, arguments, anything else that is its own)."""
    start = (str(HERE / script),) if script.endswith(".py") else ("-m", script)
    return [
        Program(package, environment, words, (*start, *always, *arguments.split()), **same | more)
        for words, arguments, more in ((*row, {})[:3] for row in rows)
    ]


_TRAINER = (
    "--output_dir", "trainer", "--max_steps", "5", "--per_device_train_batch_size", "2",
    "--report_to", "none", "--save_strategy", "no",
)  # fmt: skip
_SCHEDULES = (
    "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble",
    "DualPipeV",
)  # fmt: skip

_TORCH = [
    *_rows(
        "torch", "flint", "gpt_ddp.py",
        ("GPT, DDP", ""),
        ("GPT of one layer, DDP", "--n_layer 1 --accumulate 4 --eval_iters 1"),
        real=(),
    ),
    *_rows("torch", "flint", "plain.py", ("one device", ""), ranks=1, real=()),
    *_rows("torch", "flint", "fsdp1.py", ("FSDP1", ""), ranks=4, real=()),
    *_rows(
        "torch", "flint", "fsdp2.py",
        ("FSDP2 with prefetching", "--layers 3"),
        ("FSDP2, mixed precision", "--mixed-precision"),
        ranks=4, real=(),
    ),
    *_rows("torch", "flint", "fsdp_tp.py", ("FSDP2 with TP and SP", ""), ranks=4, real=()),
    *_rows(
        "torch", "flint", "own_loops.py",
        ("training without an optimizer", "train"),
        ("inference by functions", "functions"),
        ("inference with gradients", "model"),
        real=("--rounds-of", "batch"),
    ),
    *_rows(
        "torch", "flint", "pipeline.py",
        *((f"pipelining, {schedule}", f"--schedule {schedule}") for schedule in _SCHEDULES),
        always=("--stages-per-rank", "2"), real=(),
    ),
    *_rows(
        "torch", "flint", "many_ways.py",
        ("LBFGS", "lbfgs"),
        ("LBFGS with a line search", "lbfgs strong_wolfe"),
        ("LSTM of packed sentences, DDP", "packed"),
        ("SimCLR, negatives of all ranks", "contrastive"),
        ("WGAN-GP, averaged weights", "critics"),
        ("ZeRO-1, accumulation, clipping", "sharded_optimizer"),
        ("Join with uneven inputs", "uneven"),
        ("SP and a loss over TP's shards", "tensor_parallel"),
        ("diffusion U-Net, float16 hook", "denoise"),
        ("experts, all-to-all", "experts"),
        real=(),
    ),
    *_rows("torch", "flint", "local_sgd.py", ("DiLoCo, 3 inner steps", ""), real=()),
    *_rows(
        "torch", "flint", "sizes_by_values.py",
        ("masked words, DDP", "masked"),
        ("experts by counts", "experts"),
        ("boxes matched to anchors, DDP", "boxes"),
        real=(),
    ),
]  # fmt: skip

_TRAINERS = [
    *_rows(
        "transformers", "trainers", "hf_trainer.py",
        ("Trainer, DDP", ""),
        ("Trainer, DDP, bf16, accumulation", "--bf16 --gradient_accumulation_steps 2"),
        ("Trainer, FSDP2, bf16", "--bf16 --fsdp full_shard"),
        ("Trainer, FSDP2, checkpointing", "--fsdp full_shard --gradient_checkpointing"),
        always=_TRAINER,
    ),
    *_rows(
        "accelerate", "trainers", "accelerate_loop.py",
        ("own loop, DDP", ""),
        ("own loop, FSDP1", "--fsdp 1"),
        ("own loop, FSDP2", "--fsdp 2"),
    ),
    *_rows(
        "lightning", "trainers", "lightning_fit.py",
        ("Trainer, DDP", ""),
        ("Trainer, DDP, bf16, clipping", "--precision bf16-mixed --clip 1.0"),
        ("Trainer, FSDP1", "--strategy fsdp"),
        options=("--gpus-per-node", "2"),
    ),
]  # fmt: skip

_MEGATRON = _rows(
    "megatron-core", "megatron", "megatron_gpt.py",
    ("GPT, TP and DP", "--tp 2"),
    ("GPT, PP and DP", "--pp 2"),
    ("GPT, interleaved PP", "--pp 2 --virtual 2"),
    ("GPT, DP, distributed optimizer", "--distributed-optimizer --overlap"),
    # Tokens are spread evenly, as Flint takes them to be.
    ("experts, EP and DP", "--experts 4 --ep 2"),
    ("experts, EP and PP", "--experts 4 --ep 2 --pp 2"),
    ("experts, all-gathered, EP and DP", "--experts 4 --ep 2 --dispatcher allgather"),
    ranks=4,
)  # fmt: skip

# Where Transformer Engine's libraries are not, as in the real run, Megatron's own layers compute the
# same: the products and exchanges of the one are those of the other.
_TRANSFORMER_ENGINE = _rows(
    "transformer_engine", "transformer_engine", "megatron_gpt.py",
    ("Megatron's GPT, TP and DP", "--tp 2"),
    ("Megatron's GPT, PP and DP", "--pp 2"),
    ("Megatron's experts, EP and DP", "--experts 4 --ep 2"),
    always=("--transformer-engine",), ranks=4,
)  # fmt: skip

_DEEPSPEED = _rows(
    "deepspeed", "deepspeed", "deepspeed_zero.py",
    ("engine, ZeRO-1", "--stage 1"),
    ("engine, ZeRO-2, bf16", "--stage 2 --bf16"),
    ("engine, ZeRO-2, bf16, 3 groups of parameters", "--stage 2 --bf16 --groups 3"),
    ("engine, ZeRO-3", "--stage 3"),
    ("engine, ZeRO-3, bf16, accumulation", "--stage 3 --bf16 --accumulate 2"),
)  # fmt: skip

_TORCHTITAN = _rows(
    "torchtitan", "torchtitan", "torchtitan.train",
    ("Llama 3, FSDP2", ""),
    ("Llama 3, FSDP2 and TP", "--parallelism.tensor_parallel_degree 2"),
    ("Llama 3, FSDP2 and PP", "--parallelism.pipeline_parallel_degree 2"),
    ("Llama 3, FSDP2 and CP", "--parallelism.context_parallel_degree 2"),
    # Tokens are spread evenly, as Flint takes them to be.  Minutes: its own kernel is interpreted.
    ("DeepSeek v3, FSDP2 and EP", "--model.name deepseek_v3 --training.steps 3 "
     "--parallelism.expert_parallel_degree 2 --debug.moe_force_load_balance"),
    always=("--job.config_file", str(HERE / "torchtitan" / "small.toml")), ranks=4,
    prepare="torchtitan/prepare.py", real=("--cuda-is-cpu", "--gpu-kernels"),
)  # fmt: skip

PROGRAMS = _TORCH + _TRAINERS + _DEEPSPEED + _MEGATRON + _TRANSFORMER_ENGINE + _TORCHTITAN

_MAXTEXT = _rows(
    "maxtext", "maxtext", "maxtext.trainers.pre_train.train",
    ("dense, FSDP", ""),
    ("dense, FSDP and TP", "ici_tensor_parallelism=2"),
    ("mixture of experts, FSDP and EP", "decoder_block=mixtral num_experts=4 num_experts_per_tok=2 "
     "ici_expert_parallelism=2 megablox=false sparse_matmul=false capacity_factor=2.0"),
    always=(
        "run_name=small", "base_output_directory=runs", "dataset_type=synthetic",
        "enable_checkpointing=false", "hardware=cpu", "attention=dot_product", "steps=5",
        "skip_jax_distributed_system=true",
        "vocab_size=256", "max_target_length=64", "per_device_batch_size=1",
        "base_emb_dim=64", "base_mlp_dim=128", "base_moe_mlp_dim=128", "head_dim=16",
        "base_num_query_heads=4", "base_num_kv_heads=2", "base_num_decoder_layers=2",
    ),
    ranks=8, real=(), variables={"DECOUPLE_GCLOUD": "TRUE"},  # without Google's cloud
)  # fmt: skip

_LEVANTER = _rows(
    "marin-levanter", "levanter", "levanter.main.train_lm",
    ("train_lm, Llama, FSDP", ""),
    ("train_lm, Llama, FSDP and TP", '--trainer.mesh.axes {"model":2}'),
    always=("--config_path", "small.yaml"), ranks=8, prepare="levanter/prepare.py",
    # On GPUs its loss is a kernel that CPUs cannot run; for TPUs it is XLA's, tiled by their kind.
    # Both sides are one process: with several, a thread asks all of them whether the data are made.
    options=("--device", "tpu-v5p", "--hosts", "1"),
    real=(str(HERE / "named_devices.py"), "TPU v5p"),
)  # fmt: skip

_PREPARED = _rows(
    "tensorflow-datasets", "tfds", "jax/prepared_data.py",
    ("tf.data, data made up", ""),
    # The real run has data that the library itself makes up.
    options=("--fake-data",), real=(str(HERE / "mocked_data.py"),), ranks=8,
)  # fmt: skip

JAX_PROGRAMS = _MAXTEXT + _LEVANTER + _PREPARED
