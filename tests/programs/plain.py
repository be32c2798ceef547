"""One device, no process group: a loop with gradient accumulation and a scheduler."""

import torch
from transformer import Transformer

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = Transformer().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
data = torch.randint(0, 96, (64, 17))
best = float("inf")
for _step in range(20):
    optimizer.zero_grad()
    for _ in range(2):
        batch = data[torch.randperm(len(data))[:4]].to(device)
        loss = torch.nn.functional.cross_entropy(
            model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
        )
        (loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if loss.item() < best:
        best = loss.item()
