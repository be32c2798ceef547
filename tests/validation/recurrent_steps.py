"""Recurrent layers and cells in data-parallel training steps, by name in ``STEPS``."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import flint

INPUTS, HIDDEN, STEPS_OF, BATCH = 8, 16, 5, 4


class Sequences(nn.Module):
    """A recurrent layer and a linear one."""

    def __init__(self, layer, hidden=HIDDEN, **settings):
        super().__init__()
        self.layer = layer(INPUTS, hidden, **settings)
        self.out = nn.Linear(hidden * (1 + settings.get("bidirectional", False)), INPUTS)

    def forward(self, x):
        return self.out(self.layer(x)[0])


class Packed(Sequences):
    """Sequences of several lengths, none of them padded; the longest is not the first."""

    def forward(self, x):
        lengths = torch.tensor([max(len(x) - late, 1) for late in (1, 0, 3, 2)])
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return self.out(pad_packed_sequence(self.layer(packed)[0])[0])


class Decoded(Packed):
    """Products of inputs and of states alike in size, in both directions, and a cell after them."""

    def __init__(self, layer, cell):
        super().__init__(layer, hidden=INPUTS, num_layers=2, bidirectional=True)
        self.cell = cell(2 * INPUTS, INPUTS)

    def forward(self, x):
        lengths = torch.tensor([max(len(x) - late, 1) for late in (1, 0, 3, 2)])
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        outputs, state = pad_packed_sequence(self.layer(packed)[0])[0], x.new_zeros(BATCH, INPUTS)
        for one in outputs:
            state = self.cell(one, state)
            outputs = outputs + state.mean()
        return self.out(outputs)


class Cells(nn.Module):
    """A cell that is called for each step."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.out = cell(INPUTS, HIDDEN), nn.Linear(HIDDEN, INPUTS)

    def forward(self, x):
        state = x.new_zeros(x.shape[1], HIDDEN)
        state = (state, state) if isinstance(self.cell, nn.LSTMCell) else state
        found = []
        for one in x:
            state = self.cell(one, state)
            found.append(self.out(state[0] if isinstance(state, tuple) else state))
        return torch.stack(found)


def train(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(make, steps=STEPS_OF, sharded=False, foreach=True):
    """A captured step of a model on two ranks.

    An optimizer's ``foreach`` None is a list of tensors on accelerators, one by one on the CPU.
    """

    def setup(mesh):
        model = make().to(mesh.device_type)
        if sharded:
            for part in (*model.children(), model):
                fully_shard(part, mesh=mesh)
        else:
            model = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=foreach)
        return model, optimizer, torch.ones(steps, BATCH, INPUTS, device=mesh.device_type)

    return flint.capture(train, mesh=(2,), axes=("dp",), setup=setup, framework="torch")


STACKED = {"num_layers": 2, "bidirectional": True, "batch_first": True}
STEPS = {
    "gru": trained(lambda: Sequences(nn.GRU)),
    "gru_one_by_one": trained(lambda: Sequences(nn.GRU, num_layers=2), foreach=None),
    "lstm": trained(lambda: Sequences(nn.LSTM)),
    "rnn": trained(lambda: Sequences(nn.RNN)),
    "stacked_gru": trained(lambda: Sequences(nn.GRU, **STACKED)),
    "stacked_lstm": trained(lambda: Sequences(nn.LSTM, dropout=0.2, **STACKED)),
    "packed_gru": trained(lambda: Packed(nn.GRU)),
    "packed_lstm": trained(lambda: Packed(nn.LSTM, num_layers=2, bidirectional=True)),
    "decoded_gru": trained(lambda: Decoded(nn.GRU, nn.GRUCell)),
    "sharded_gru": trained(lambda: Sequences(nn.GRU), sharded=True),
    "sharded_lstm": trained(lambda: Sequences(nn.LSTM), sharded=True),
    "gru_cell": trained(lambda: Cells(nn.GRUCell)),
    "lstm_cell": trained(lambda: Cells(nn.LSTMCell)),
    "rnn_cell": trained(lambda: Cells(nn.RNNCell)),
}
