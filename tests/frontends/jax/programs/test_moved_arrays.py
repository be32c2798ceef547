"""Which device sends what when an array is put on others: as JAX does it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flint.frontends.jax.programs.moved_arrays import plan_of
from tests.support.children import answer_of


@cache
def cases():
    return answer_of(Path(__file__).with_name("moved_for_real.py"), devices=8)


def test_devices_copy_what_they_copy_in_a_run():
    direct = [case for case in cases() if not case[0][1]]
    assert len(direct) == 11
    assert [planned for _, planned in direct] == [real for real, _ in direct]


def test_an_array_that_goes_through_the_host_in_a_run_comes_in_pieces_of_those_that_have_it():
    through = [planned for (_, of_host), planned in cases() if of_host]
    # Of 8 x 16 floats, device n has two rows; device 4 + m gets four columns: 2 x 4 of each.
    columns = [[n, 4 + m, 2 * 4 * 4] for n in range(4) for m in range(4)]
    # Device 0 gets the rows that it does not have.
    rows = [[n, 0, 2 * 16 * 4] for n in range(1, 4)]
    assert through == [[columns, True], [rows, True]]


def test_nothing_moves_to_a_device_that_has_the_array():
    here = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), P())
    assert plan_of((8, 16), 32, here, here).pieces == ()
