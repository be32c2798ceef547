"""PPO on 4,096 cart poles in one jitted step, as PureJaxRL does: rollouts and updates are scans."""

import argparse

import jax
import jax.numpy as jnp
import optax

TX = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-5))


def net(params, x):
    for w in params["body"]:
        x = jnp.tanh(x @ w["w"] + w["b"])
    return x @ params["policy"], (x @ params["value"])[..., 0]


def move(s, action):
    """One step of a cart pole; s [..., 4]."""
    x, v, a, w = jnp.moveaxis(s, -1, 0)
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(a), jnp.cos(a)
    temp = (force + 0.05 * w**2 * sin) / 1.1
    alpha = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    s = jnp.stack(
        [
            x + 0.02 * v,
            v + 0.02 * (temp - 0.05 * alpha * cos / 1.1),
            a + 0.02 * w,
            w + 0.02 * alpha,
        ],
        axis=-1,
    )
    done = (jnp.abs(s[..., 0]) > 2.4) | (jnp.abs(s[..., 2]) > 0.21)
    return jnp.where(done[..., None], 0.01, s), done


def build(tiny=False):
    envs, length, epochs, parts, width = (16, 8, 2, 2, 16) if tiny else (4096, 64, 4, 4, 256)

    @jax.jit
    def init(key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        layer = lambda k, i: {
            "w": jax.random.normal(k, (i, width)) * i**-0.5,
            "b": jnp.zeros(width),
        }
        params = {
            "body": [layer(k1, 4), layer(k2, width)],
            "value": jnp.zeros((width, 1)),
            "policy": 0.01 * jax.random.normal(k3, (width, 2)),
        }
        return params, TX.init(params), 0.05 * jax.random.normal(k4, (envs, 4)), key

    def loss_fn(params, s, action, old, advantage, target):
        logits, value = net(params, s)
        logp = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(logp, action[:, None], 1)[:, 0] - old)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
        entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
        return policy + 0.5 * ((value - target) ** 2).mean() - 0.01 * entropy

    @jax.jit
    def train_step(state, discount):
        params, opt, s, key = state

        def act(carry, _):
            s, key = carry
            key, k = jax.random.split(key)
            logits, value = net(params, s)
            action = jax.random.categorical(k, logits)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            new, done = move(s, action)
            return (new, key), (s, action, logp, value, done)

        (s, key), (seen, action, logp, value, done) = jax.lax.scan(act, (s, key), None, length)

        def gae(carry, x):
            advantage, following = carry
            value, done = x
            delta = 1.0 + discount * following * (1 - done) - value
            advantage = delta + discount * 0.95 * (1 - done) * advantage
            return (advantage, value), advantage

        _, advantage = jax.lax.scan(
            gae,
            (jnp.zeros(envs), net(params, s)[1]),
            (value, done.astype(jnp.float32)),
            reverse=True,
        )
        data = (seen, action, logp, advantage, advantage + value)
        data = jax.tree.map(lambda x: x.reshape(envs * length, *x.shape[2:]), data)

        def epoch(carry, _):
            params, opt, key = carry
            key, k = jax.random.split(key)
            order = jax.random.permutation(k, envs * length)
            mixed = jax.tree.map(lambda x: x[order].reshape(parts, -1, *x.shape[1:]), data)

            def part(carry, batch):
                params, opt = carry
                loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
                updates, opt = TX.update(grads, opt)
                return (optax.apply_updates(params, updates), opt), loss

            (params, opt), losses = jax.lax.scan(part, (params, opt), mixed)
            return (params, opt, key), losses

        (params, opt, key), losses = jax.lax.scan(epoch, (params, opt, key), None, epochs)
        return (params, opt, s, key), losses.mean()

    return train_step, init(jax.random.key(0)), jnp.float32(0.99)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
