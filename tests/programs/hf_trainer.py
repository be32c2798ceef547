"""Hugging Face's Trainer; all sizes and all about the training are arguments of the command line.

torchrun --nproc-per-node 2 hf_trainer.py --output_dir out --max_steps 5 --bf16
"""

from dataclasses import asdict, dataclass

from language_model import Tokens, llama
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    layers: int = 2
    width: int = 64
    inner: int = 128
    heads: int = 4
    groups: int = 2
    vocabulary: int = 128
    length: int = 32


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    sizes, arguments = parser.parse_args_into_dataclasses()
    data = Tokens(length=sizes.length, vocabulary=sizes.vocabulary)
    trainer = Trainer(model=llama(**asdict(sizes)), args=arguments, train_dataset=data)
    trainer.train()


if __name__ == "__main__":
    main()
