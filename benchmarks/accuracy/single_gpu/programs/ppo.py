"""Reinforcement learning: small perceptrons of a policy and a value, minibatches of a rollout; float32, Adam."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=16384)
args = parser.parse_args()
if args.tiny:
    args.batch = 64
device = "cuda" if torch.cuda.is_available() else "cpu"


def perceptron(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(108, 512),
        nn.ELU(),
        nn.Linear(512, 256),
        nn.ELU(),
        nn.Linear(256, 128),
        nn.ELU(),
        nn.Linear(128, outputs),
    )


torch.manual_seed(0)
policy, value = perceptron(21).to(device), perceptron(1).to(device)
spread = nn.Parameter(torch.zeros(21, device=device))
parameters = [*policy.parameters(), *value.parameters(), spread]
optimizer = torch.optim.Adam(parameters, lr=3e-4)
states = torch.randn(4, args.batch, 108, device=device)
actions = torch.randn(4, args.batch, 21, device=device)
before = torch.randn(4, args.batch, device=device) - 20
gains, returns = (torch.randn(4, args.batch, device=device) for _ in range(2))
for step in range(args.steps):
    i = step % 4
    chances = torch.distributions.Normal(policy(states[i]), spread.exp(), validate_args=False)
    now = chances.log_prob(actions[i]).sum(-1)
    ratio = (now - before[i]).exp()
    gain = (gains[i] - gains[i].mean()) / (gains[i].std() + 1e-8)
    surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    guess = value(states[i]).squeeze(-1)
    loss = F.mse_loss(guess, returns[i]) - surrogate - 0.01 * chances.entropy().sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
