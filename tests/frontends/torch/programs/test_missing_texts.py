"""Programs whose tokenizers and streams of texts are not there: what they get on request."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # noqa: E402, F401  # here, not in every child
from tests.frontends.torch.programs.test_missing_data import needs  # noqa: E402


def test_a_stream_has_a_part_for_every_rank_and_every_worker_of_its_loader(made_up):
    needs("datasets")
    assert made_up("""
        from datasets import load_dataset
        from datasets.distributed import split_dataset_by_node
        stream = load_dataset("no/corpus", split="train", streaming=True)
        mine = stream.shard(num_shards=48, index=47).skip(3)
        node = split_dataset_by_node(stream.shuffle(seed=1), rank=2, world_size=3)
        loader = torch.utils.data.DataLoader(node, batch_size=2, num_workers=2)
        say(mine.num_shards, len(next(iter(mine))["text"].split()),
            len(next(iter(loader))["text"]))
    """) == [160, 1024, 2]


def test_a_tokenizer_has_the_vocabulary_of_the_models_configuration(made_up, tmp_path):
    needs("transformers")
    sizes = {"model_type": "llama", "vocab_size": 900, "max_position_embeddings": 64}
    sizes |= {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"intermediate_size": 8}))
    found = made_up(f"""
        from transformers import AutoModelForCausalLM, AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained("{tmp_path}")
        taken = tokenizer("w1 w2 " * 100, truncation=True, return_tensors="pt").input_ids
        model = AutoModelForCausalLM.from_pretrained("{tmp_path}")
        say(len(tokenizer), list(taken.shape), int(taken.max()) < 900,
            list(model.lm_head.weight.shape),
            [len(AutoTokenizer.from_pretrained(name)) for name in ("no/model", "/no/folder")])
    """)
    assert found == [900, [1, 64], True, [900, 32], [32_000, 32_000]]


def test_a_tokenizer_is_as_the_program_asks_for_it(made_up):
    needs("transformers")
    assert made_up("""
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(
            "no/model", model_max_length=16, padding_side="left", pad_token="<none>",
            extra_special_tokens={"image_token": "<image>"},
            chat_template="{{ messages[0]['content'] }}",
        )
        taken = tokenizer("w1 " * 100, truncation=True).input_ids
        say(len(taken), tokenizer.padding_side, tokenizer.pad_token, tokenizer.image_token,
            tokenizer.apply_chat_template([{"content": "w3"}], tokenize=False))
    """) == [16, "left", "<none>", "<image>", "w3"]
