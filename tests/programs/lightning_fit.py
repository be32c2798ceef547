"""Lightning: a module and a trainer, whose strategy is an argument."""

import argparse

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DataLoader, TensorDataset
from transformer import Block, Transformer


class Language(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Transformer()

    def training_step(self, batch, _):
        (tokens,) = batch
        logits = self.model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--clip", type=float)
    args = parser.parse_args()
    strategy = args.strategy
    if strategy == "fsdp":
        strategy = FSDPStrategy(auto_wrap_policy={Block})
    lightning.seed_everything(0)
    tokens = TensorDataset(torch.randint(0, 96, (256, 17)))
    trainer = lightning.Trainer(
        max_steps=6, strategy=strategy, precision=args.precision, devices=args.devices,
        gradient_clip_val=args.clip, accelerator="gpu" if torch.cuda.is_available() else "cpu",
        logger=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Language(), DataLoader(tokens, batch_size=4, shuffle=True))


if __name__ == "__main__":
    main()
