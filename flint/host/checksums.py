"""Checksums of files: 64 bits that show damage and edits, cheap for similar files.

The idea: a weighted sum of the file's 32-bit words, modulo 2^64, with odd pseudo-random weights
(multilinear hashing: Lemire and Kaser, "Strongly universal string hashing is fast", 2014).  A
change of one word always changes the sum, others with a probability of 1 - 2^-40 or more.  As it is
linear, the sum of a file that differs from another in some bytes follows from these bytes alone:
traces of many ranks are such files.  It does not protect against forgery: someone who can change a
file of a folder can also change its entry in the folder.

    checksum(b"...")
    checksum(b"..a") + coefficients([2]) * (ord("b") - ord("a")) == checksum(b"..b")  # mod 2^64
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

#: Number of words that share a table of weights, which stays in a processor's cache.
_BLOCK = 1 << 15


def _random(numbers: Words) -> Words:
    """Odd numbers that look random: splitmix64 (Steele, Lea and Flood, 2014)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: Words = mixed ^ (mixed >> np.uint64(31)) | np.uint64(1)
    return odd


_WEIGHTS = _random(np.arange(_BLOCK, dtype=np.uint64))


def _of_blocks(numbers: Words) -> Words:
    """The factor for the sum of each block."""
    return _random(numbers + np.uint64(_BLOCK))


def checksum(data: bytes | memoryview | NDArray[np.uint8]) -> int:
    """The sum of a file's content; the length is not part of it."""
    content = np.frombuffer(data, np.uint8)
    whole = len(content) // 4
    words = content[: 4 * whole].view("<u4")
    sums = np.zeros(-(-len(content) // (4 * _BLOCK)), np.uint64)
    for block, start in enumerate(range(0, whole, _BLOCK)):
        part = words[start : start + _BLOCK].astype(np.uint64)
        sums[block] = np.dot(part, _WEIGHTS[: len(part)])
    rest = np.arange(4 * whole, len(content))
    last = int(np.dot(content[rest].astype(np.uint64), coefficients(rest)))
    blocks = _of_blocks(np.arange(len(sums), dtype=np.uint64))
    return (int(np.dot(sums, blocks)) + last) % 2**64


def coefficients(positions: NDArray[np.int64]) -> Words:
    """How much the sum grows, modulo 2^64, if the byte at each position grows by one."""
    places = np.asarray(positions, np.uint64)
    block, word = np.divmod(places // np.uint64(4), np.uint64(_BLOCK))
    found: Words = _WEIGHTS[word] * _of_blocks(block) << np.uint64(8) * (places % np.uint64(4))
    return found
