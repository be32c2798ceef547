"""Mixtures of experts by their papers' formulas: token by token in numpy, float64, nothing shared
with the models' own code but the names of the arrays and the sizes."""

from __future__ import annotations

import numpy as np


def loss(name, config, params, batch):
    """Mean cross entropy of the next token."""
    params = _wide(params)
    found = [
        _sequence(name, config, params, tokens, targets)
        for tokens, targets in zip(batch["tokens"], batch["targets"], strict=True)
    ]
    return np.mean(found)


def _wide(tree):
    if isinstance(tree, dict):
        return {key: _wide(item) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [_wide(item) for item in tree]
    return np.asarray(tree, np.float64)


def _layer(tree, number):
    if isinstance(tree, dict):
        return {key: _layer(item, number) for key, item in tree.items()}
    return tree[number]


def _layers(name, config, params):
    """Parameters of every layer with what it sees (window, chunk, whether it has positions)."""
    if name.startswith("deepseek"):
        for number in range(config.dense):
            yield _layer(params["dense"], number), (None, None, True)
    kinds = {
        "gpt-oss-20b": [(5, None, True), (None, None, True)],
        **dict.fromkeys(
            ("llama4-scout", "llama4-maverick"), [(None, 8, True)] * 3 + [(None, None, False)]
        ),
    }.get(name, [(None, None, True)])
    blocks = params["blocks"] if len(kinds) > 1 else [params["blocks"]]
    for number in range((config.layers - config.dense) // len(kinds)):
        for block, kind in zip(blocks, kinds, strict=True):
            yield _layer(block, number), kind


def _sequence(name, config, params, tokens, targets):
    x = params["embedding"][tokens]
    for layer, kind in _layers(name, config, params):
        x = x + _attention(
            name, config, _norm(x, layer["attention_norm"]), layer["attention"], kind
        )
        if "moe" in layer:
            y = _norm(x, layer["moe_norm"])
            x = x + np.stack([_mixture(name, config, token, layer["moe"]) for token in y])
        else:
            x = x + _swiglu(_norm(x, layer["mlp_norm"]), layer["mlp"])
    scores = _norm(x, params["norm"]) @ params["head"]
    scores = scores - scores.max(-1, keepdims=True)
    chances = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return -np.log(chances[np.arange(len(targets)), targets]).mean()


def _norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def _silu(x):
    return x / (1 + np.exp(-x))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _swiglu(x, layer):
    return (_silu(x @ layer["gate"]) * (x @ layer["up"])) @ layer["down"]


def _turned(x, position, theta):
    """A head's elements i and i + half, turned together."""
    half = len(x) // 2
    out = np.empty_like(x)
    for i in range(half):
        angle = position / theta ** (i / half)
        out[i] = x[i] * np.cos(angle) - x[i + half] * np.sin(angle)
        out[i + half] = x[i + half] * np.cos(angle) + x[i] * np.sin(angle)
    return out


def _attention(name, config, x, layer, kind):
    window, chunk, rotates = kind
    theta, size, count = config.heads.theta, config.heads.size, config.heads.queries
    if name.startswith("deepseek"):
        q, k, v = _latents(config, x, layer)
        keys = count
    else:
        keys = config.heads.keys
        bias = {n: layer.get(f"b{n}", 0.0) for n in "qkv"}
        q, k, v = ((x @ layer[f"w{n}"] + bias[n]).reshape(len(x), -1, size) for n in "qkv")
        if name.startswith("qwen3"):
            q, k = _norm(q, layer["q_norm"]), _norm(k, layer["k_norm"])
        if rotates:
            q, k = (
                np.stack([[_turned(h, t, theta) for h in y[t]] for t in range(len(x))])
                for y in (q, k)
            )
        if name == "llama4-scout" and rotates:
            q, k = _norm(q, 1.0), _norm(k, 1.0)
    out = np.zeros((len(x), count, v.shape[-1]))
    for t in range(len(x)):
        first = 0
        if window:
            first = max(0, t - window + 1)
        if chunk:
            first = t // chunk * chunk
        for h in range(count):
            own = h * keys // count
            scores = k[first : t + 1, own] @ q[t, h] / np.sqrt(q.shape[-1])
            weights = np.exp(scores)
            total = weights.sum()
            if name.startswith("gpt-oss"):
                total += np.exp(layer["sinks"][h])
            out[t, h] = (weights / total) @ v[first : t + 1, own]
    made = out.reshape(len(x), -1) @ layer["wo"]
    return made + layer.get("bo", 0.0)


def _latents(config, x, layer):
    latent, size, count = config.form.latent, config.heads.size, config.heads.queries
    theta, length = config.heads.theta, len(x)
    if "wq" in layer:
        q = x @ layer["wq"]
    else:
        q = _norm(x @ layer["q_down"], layer["q_norm"]) @ layer["q_up"]
    q = q.reshape(length, count, -1)
    down = x @ layer["kv_down"]
    up = _norm(down[:, : latent.keys], layer["kv_norm"]) @ layer["kv_up"]
    up = up.reshape(length, count, -1)
    q, k = q.copy(), np.concatenate([up[..., :size], np.zeros((length, count, latent.rotated))], -1)
    for t in range(length):
        for h in range(count):
            q[t, h, size:] = _turned(q[t, h, size:], t, theta)
            k[t, h, size:] = _turned(down[t, latent.keys :], t, theta)
    return q, k, up[..., size:]


def _mixture(name, config, x, layer):
    """One token through its experts."""
    experts = config.experts
    scores = x @ layer["router"] + layer.get("router_bias", 0.0)
    if name == "deepseek-v3":
        affinity = _sigmoid(scores)
        wanted = (affinity + layer["correction"]).reshape(experts.groups, -1)
        best = np.argsort(-np.sort(wanted, -1)[:, -2:].sum(-1))[: experts.kept_groups]
        outside = [g for g in range(experts.groups) if g not in best]
        wanted[outside] = -np.inf
        chosen = np.argsort(-wanted.ravel())[: experts.chosen]
        weights = experts.scale * affinity[chosen] / affinity[chosen].sum()
    elif name.startswith("deepseek-v2"):
        chances = np.exp(scores) / np.exp(scores).sum()
        wanted = chances.reshape(experts.groups, -1).copy()
        best = np.argsort(-wanted.max(-1))[: experts.kept_groups]
        wanted[[g for g in range(experts.groups) if g not in best]] = -np.inf
        chosen = np.argsort(-wanted.ravel())[: experts.chosen]
        weights = experts.scale * chances[chosen]
    else:
        chosen = np.argsort(-scores)[: experts.chosen]
        weights = np.exp(scores[chosen]) / np.exp(scores[chosen]).sum()
    total = np.zeros_like(x)
    for expert, weight in zip(chosen, weights, strict=True):
        own = {key: layer[key][expert] for key in _EXPERTS if key in layer}
        if name.startswith("llama4"):
            total += _swiglu(x * _sigmoid(scores[expert]), own)
        elif name.startswith("gpt-oss"):
            gate = np.minimum(x @ own["gate"] + own["gate_bias"], 7.0)
            up = np.clip(x @ own["up"] + own["up_bias"], -7.0, 7.0)
            hidden = (up + 1) * gate * _sigmoid(1.702 * gate)
            total += weight * (hidden @ own["down"] + own["down_bias"])
        else:
            total += weight * _swiglu(x, own)
    if "shared" in layer:
        total += _swiglu(x, layer["shared"])
    return total


_EXPERTS = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")
