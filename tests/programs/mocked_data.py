"""Run a JAX program for real, with data that ``tensorflow_datasets`` itself makes up for tests.

python mocked_data.py train.py --its arguments
"""

import runpy
import sys
from pathlib import Path

import tensorflow_datasets as tfds

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    with tfds.testing.mock_data(num_examples=64):
        runpy.run_path(sys.argv[0], run_name="__main__")
