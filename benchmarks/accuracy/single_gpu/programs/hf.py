"""Models of transformers by their configurations: CLIP, Whisper, Qwen2, a masked DistilBERT, GPT-NeoX."""

import argparse

import torch
import transformers as hf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument(
    "--model", choices=["clip", "whisper", "qwen2", "distilbert", "neox"], default="qwen2"
)
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def tokens(rows: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(3, vocabulary, (rows, length), device=device)


batch = (
    args.batch or {"clip": 128, "whisper": 16, "qwen2": 4, "distilbert": 64, "neox": 8}[args.model]
)
batch = 2 if args.tiny else batch
with torch.device(device):
    if args.model == "clip":
        small = {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        }
        config = (
            hf.CLIPConfig(text_config=small, vision_config=small) if args.tiny else hf.CLIPConfig()
        )
        model = hf.CLIPModel(config)
        inputs = {
            "input_ids": tokens(batch, 77, 49000),
            "return_loss": True,
            "pixel_values": torch.randn(batch, 3, 224, 224),
        }
    elif args.model == "whisper":
        d, n = (64, 2) if args.tiny else (768, 12)
        config = hf.WhisperConfig(
            d_model=d,
            encoder_layers=n,
            decoder_layers=n,
            encoder_attention_heads=d // 32,
            decoder_attention_heads=d // 32,
            encoder_ffn_dim=4 * d,
            decoder_ffn_dim=4 * d,
        )
        model = hf.WhisperForConditionalGeneration(config)
        inputs = {
            "input_features": torch.randn(batch, 80, 3000),
            "labels": tokens(batch, 192, 50000),
        }
    elif args.model == "qwen2":
        d, n, v = (64, 2, 256) if args.tiny else (896, 24, 151936)
        config = hf.Qwen2Config(
            hidden_size=d,
            intermediate_size=4864 if n > 2 else 128,
            num_hidden_layers=n,
            num_attention_heads=14 if n > 2 else 2,
            num_key_value_heads=2,
            vocab_size=v,
            tie_word_embeddings=True,
            use_cache=False,
        )
        model = hf.Qwen2ForCausalLM(config)
        ids = tokens(batch, 32 if args.tiny else 1024, v)
        inputs = {"input_ids": ids, "labels": ids}
    elif args.model == "neox":
        d, n, v = (64, 2, 256) if args.tiny else (1024, 24, 50304)
        config = hf.GPTNeoXConfig(
            hidden_size=d,
            intermediate_size=4 * d,
            num_hidden_layers=n,
            num_attention_heads=d // 32 // (1 if args.tiny else 2),
            vocab_size=v,
            use_cache=False,
        )
        model = hf.GPTNeoXForCausalLM(config)
        ids = tokens(batch, 32 if args.tiny else 1024, v)
        inputs = {"input_ids": ids, "labels": ids}
    else:
        d, n = (64, 2) if args.tiny else (768, 6)
        config = hf.DistilBertConfig(
            dim=d, n_layers=n, n_heads=d // 32 // (1 if args.tiny else 2), hidden_dim=4 * d
        )
        model = hf.DistilBertForMaskedLM(config)
        ids = tokens(batch, 32 if args.tiny else 256, 30000)
        inputs = {"input_ids": ids, "labels": ids}
model.train()
if args.checkpoint:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(args.steps):
    for _ in range(args.accumulate):
        with torch.autocast(device, torch.bfloat16):
            loss = model(**inputs).loss / args.accumulate
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
