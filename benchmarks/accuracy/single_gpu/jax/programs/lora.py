"""LoRA of rank 16 beside frozen bf16 weights of a 1.1B Llama, scanned with remat, cuDNN's attention."""

import argparse
import functools

import jax
import jax.numpy as jnp
import llama_cudnn as llama
import optax

TX = optax.adamw(1e-4)
ADAPTED = ("q", "k", "v", "o", "gate", "up", "down")


def build(tiny=False, rank=16):
    c = llama.sizes(tiny) | ({} if tiny else dict(layers=16, batch=2))
    block = functools.partial(llama.block, c, "xla" if tiny else "cudnn")

    @jax.jit
    def init(key):
        k1, k2 = jax.random.split(key)
        frozen = jax.tree.map(lambda p: p.astype(jnp.bfloat16), llama.init(k1, c))
        adapters = {}
        for name, key in zip(ADAPTED, jax.random.split(k2, len(ADAPTED))):
            n, i, o = frozen["layers"][name].shape
            adapters[name] = {
                "a": jax.random.normal(key, (n, i, rank)) * i**-0.5,
                "b": jnp.zeros((n, rank, o)),
            }
        return adapters, TX.init(adapters), frozen

    @jax.checkpoint
    def layer(x, weights):
        w, adapters = weights
        merged = {
            k: w[k] + (2.0 * ab["a"].astype(jnp.bfloat16)) @ ab["b"].astype(jnp.bfloat16)
            for k, ab in adapters.items()
        }
        return block(x, w | merged), None

    def loss_fn(adapters, frozen, tokens):
        x = frozen["embed"][tokens[:, :-1]]
        x, _ = jax.lax.scan(layer, x, (frozen["layers"], adapters))
        logits = (llama.rms_norm(x, frozen["norm"]) @ frozen["head"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        adapters, opt, frozen = state
        loss, grads = jax.value_and_grad(loss_fn)(adapters, frozen, tokens)
        updates, opt = TX.update(grads, opt, adapters)
        return (optax.apply_updates(adapters, updates), opt, frozen), loss

    tokens = jax.random.randint(jax.random.key(1), (c["batch"], c["length"] + 1), 0, c["vocab"])
    return train_step, init(jax.random.key(0)), tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
