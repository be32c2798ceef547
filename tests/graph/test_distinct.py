"""Distinct values, against numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from flint.graph.distinct import distinct


@given(
    arrays(np.int64, array_shapes(min_dims=1, max_dims=2, min_side=0), elements=st.integers(-3, 3))
)
def test_the_distinct_values_are_numpys(values: np.ndarray) -> None:
    assert distinct(values).tolist() == np.unique(values).tolist()
