"""Numbers of the host that ranks exchange, and those that the device has written.

As rank 5 of 16, of which each is assumed to have the same numbers.
"""

from __future__ import annotations

from flint.launching.capturing import steps

BEGIN = """
    import torch.distributed as dist
    dist.init_process_group("nccl")
    gloo = dist.new_group(backend="gloo")
    said = []
    def new(count): return torch.full((count,), -7)
"""


def test_collectives_of_the_hosts_numbers_give_what_equal_ranks_give(said):
    found = said(
        BEGIN
        + """
    for op in ("SUM", "MAX", "PRODUCT"):
        own = torch.tensor([1, 2]); dist.all_reduce(own, getattr(dist.ReduceOp, op), group=gloo)
        said.append(own.tolist())
    parts = [new(2) for _ in range(16)]
    dist.all_gather(parts, torch.tensor([3, 5]), group=gloo)
    said.append(parts[0].tolist() + parts[15].tolist())
    whole = new(16); dist.all_to_all_single(whole, torch.arange(16), group=gloo)
    said.append(whole.tolist())
    say(*said)
    """
    )
    # 16 times, the same, the 16th power; and from every rank the part that this one has for itself.
    assert found == [[16, 32], [1, 2], [1, 2**16], [3, 5, 3, 5], [5] * 16]


def test_the_hosts_numbers_may_be_counted_as_floats_of_the_device(said):
    """A number of tokens: as each rank's, and their sum. A layer's result stays unknown."""
    found = said(
        BEGIN
        + """
    own = torch.tensor(2.5).cuda()
    parts = [torch.zeros_like(own) for _ in range(16)]
    dist.all_gather(parts, own)
    said.append([part.item() for part in parts[:2]])
    dist.all_reduce(own)
    loss = torch.nn.Linear(4, 1).cuda()(torch.ones(4, device="cuda"))
    dist.all_reduce(loss)
    from flint.frontends.torch.context import capture
    said += own.item(), loss.item(), [text.split(" at ")[0] for text in capture().assumed]
    say(*said)
    """
    )
    read = ["a value is read"] * 2 + ["a float tensor's value is read"]
    assert found == [[2.5, 2.5], 40.0, 1.0, read]


def test_an_exchange_of_the_hosts_numbers_is_reported_with_its_line(said):
    found = said(
        BEGIN
        + """
    whole = new(16); dist.all_to_all_single(whole, torch.arange(16), group=gloo)
    from flint.frontends.torch.context import capture
    say(*(text for text in capture().assumed if "exchanged" in text))
    """
    )
    assert len(found) == 1 and "train.py:" in found[0]


def test_what_is_received_or_written_by_the_device_is_not_what_was_there(said):
    found = said(
        BEGIN
        + """
    got = new(2); dist.recv(got, 4, group=gloo)
    copied = new(2); copied.copy_(torch.ones(4, 2, device="cuda").relu().sum(0).long())
    for old in (got, copied):
        said.append(-7 in old.tolist() or int(old[0]) == -7 or -6 in (old + 1).tolist())
    say(*said)
    """
    )
    assert found == [False, False]


def test_the_hosts_numbers_are_counted_as_they_are(said):
    found = said(
        BEGIN
        + """
    where = torch.tensor([0, 2, 2, 1])
    say(torch.bincount(where, minlength=4).tolist(),
        torch.zeros(4, dtype=torch.long).scatter_add_(0, where, torch.ones_like(where)).tolist())
    """
    )
    assert found == [[1, 1, 2, 0], [1, 1, 2, 0]]


def test_the_state_of_a_gradient_scaler_may_be_read_in_the_step(request_of):
    text = """
        import torch
        layer, scaler = torch.nn.Linear(4, 4).cuda(), torch.amp.GradScaler("cuda")
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(4):
            scaler.scale(layer(torch.ones(2, 4).cuda()).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scaler.state_dict()["scale"]
    """
    [step] = steps(request_of(text, lists_steps=True)).steps
    assert (step.name, step.count) == ("optimizer", 2)


def test_one_known_operand_may_decide(said):
    """A text that is as long as it may be ends, whatever its last word is."""
    found = said("""
        unknown = torch.randn(3, device="cuda") > 0
        running, seen = torch.ones(3, dtype=torch.int64, device="cuda"), []
        for length in (3, 4):
            done = torch.full((3,), length >= 4, device="cuda") | unknown
            running = running & ~done
            seen.append(bool(running.max() == 0))
        say(*seen)
    """)
    assert found == [False, True]
