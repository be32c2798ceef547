"""What a kernel states that it sends to other devices: who sends, and bad statements."""

import json

import pytest

from flint.errors import FlintError
from flint.stablehlo.collectives.remote_copies import messages_of
from flint.stablehlo.collectives.world import World


def stated(**changed):
    entry = {"bytes": 64, "dtype": "f32", "by": [0, 1], "from": [[-1, 0], [1, 1]]}
    return json.dumps({"mesh": [2, 4], "sent": [entry | changed]})


def test_devices_are_counted_row_by_row_and_only_the_named_ones_send():
    """Of a mesh of 2 x 4, the first column (0 and 4) and the device at (1, 1), number 5, send."""
    [item] = messages_of(stated(), World(8))
    assert item.permutation.target.tolist() == [1, -1, -1, -1, 5, 6, -1, -1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"mesh": [8]}',
        stated(bytes=-1),
        stated(by=[1]),
        stated(**{"from": [[0, 9]]}),
        stated(**{"from": 3}),
        stated(bytes="many"),
    ],
)
def test_a_bad_statement_is_refused(text):
    with pytest.raises(FlintError):
        messages_of(text, World(8))


def test_a_mesh_of_other_devices_is_refused():
    with pytest.raises(FlintError, match="a mesh of 8, but the module is for 16 partitions"):
        messages_of(stated(), World(16))
