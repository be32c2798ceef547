"""The packages, found: all of flint/, and three folders beside it that go into the same package.

pyproject.toml says where the three lie (``package-dir``); setuptools can look for packages under
another name than their folder's only here.
"""

from setuptools import find_packages, setup

BESIDE = ("frontends", "converters", "models")

setup(
    packages=[
        *find_packages(include=["flint", "flint.*"]),
        *(
            f"flint.{name}"
            for folder in BESIDE
            for name in find_packages(include=[folder, f"{folder}.*"])
        ),
    ]
)
