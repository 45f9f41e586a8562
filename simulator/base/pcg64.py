"""Many of numpy's random streams in little memory, bit for bit as numpy has them.

A ``numpy.random.Generator`` takes 14 us to seed and about a kilobyte; a million workers
have several streams each. Here a stream is the state of its generator alone, a row of
four words, and streams whose names differ in an index are seeded together:

- ``SeedSequence`` mixes its words one after the other into a pool of four (O'Neill,
  "Developing a seed_seq alternative", 2015). The index is the last word, so the pool before
  it is the same for all, and numpy computes that.
- PCG64 is a linear congruential generator of 128 bits whose output is permuted (O'Neill,
  "PCG", 2014), here with each half of its state in a word of 64 bits.

Draws are made by numpy itself: :class:`Sampler` puts a stream's state into the memory of
one generator, and takes it back afterwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sampler", "Words", "doubles", "seeded"]

Words = NDArray[np.uint64]

_CHUNK = 1 << 14  # streams that are seeded together, so that the arrays in between stay in the cache
_ONE = np.uint64(1)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_MULTIPLIER_LOW = np.uint64(_MULTIPLIER & 0xFFFF_FFFF_FFFF_FFFF)
_MULTIPLIER_HIGH = np.uint64(_MULTIPLIER >> 64)


def seeded(seed: int, key: tuple[int, ...], indices: NDArray[np.int64]) -> Words:
    """The states of ``default_rng(SeedSequence(seed, spawn_key=(*key, index)))`` for many indices.

    Parameters
    ----------
    seed, key
        As numpy takes them; not negative.
    indices
        From 0 to 2**32 - 1, shape (n,).

    Returns
    -------
    Words
        Shape (n, 4): low and high half of the state, low and high half of the increment.
    """
    states = np.empty((len(indices), 4), dtype=np.uint64)
    pool = np.random.SeedSequence(seed, spawn_key=key).pool
    mixed = max(_words(seed), len(pool)) + sum(map(_words, key))
    for at in range(0, len(indices), _CHUNK):
        _seed(states[at : at + _CHUNK], pool, mixed, indices[at : at + _CHUNK].astype(np.uint32))
    return states


def _words(number: int) -> int:
    """Words of 32 bits that a number takes."""
    return max(-(-number.bit_length() // 32), 1)


def _seed(states: Words, pool: NDArray[np.uint32], mixed: int, indices: NDArray[np.uint32]) -> None:
    """Mix the last word into a pool that has taken ``mixed`` others, and begin the streams with what comes of it."""
    before, after = _constants(0x43B0D7E5 * pow(0x931E8875, 4 * mixed, 1 << 32), 0x931E8875, len(pool))
    hashed = _hashed(indices ^ before, after)
    hashed *= np.uint32(0x4973F715)
    mix = (pool * np.uint32(0xCA01F9DD))[:, None] - hashed
    mix ^= mix >> np.uint32(16)
    seeds = _hashed(np.concatenate([mix, mix]) ^ _OF_SEEDS[0], _OF_SEEDS[1]).astype(np.uint64)
    high, low, increment_high, increment_low = seeds[::2] | (seeds[1::2] << _32)
    states[:, 2] = (increment_low << _ONE) | _ONE
    states[:, 3] = (increment_high << _ONE) | (increment_low >> np.uint64(63))
    # the generator's first state is its increment, to which the seed is added
    np.add(states[:, 2], low, out=states[:, 0])
    states[:, 1] = states[:, 3] + high + (states[:, 0] < low)
    _advance(states)


def _hashed(words: NDArray[np.uint32], constants: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words *= constants
    words ^= words >> np.uint32(16)
    return words


def _constants(first: int, multiplier: int, count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What words that are hashed one after the other meet: numpy multiplies its constant on each time. Shapes (count, 1)."""
    found = [first * pow(multiplier, number, 1 << 32) & 0xFFFF_FFFF for number in range(count + 1)]
    column = np.array(found, dtype=np.uint32)[:, None]
    return column[:-1], column[1:]


_OF_SEEDS = _constants(0x8B51F9DD, 0x58F38DED, 8)


def _advance(states: Words) -> None:
    """One step of each stream: its state times the multiplier, plus its increment, modulo 2**128."""
    low, high = states[:, 0].copy(), states[:, 1]
    upper: Words = high * _MULTIPLIER_LOW + low * _MULTIPLIER_HIGH + _upper_half(low) + states[:, 3]
    np.add(low * _MULTIPLIER_LOW, states[:, 2], out=states[:, 0])
    np.add(upper, states[:, 0] < states[:, 2], out=states[:, 1])


def _upper_half(low: Words) -> Words:
    """The upper 64 of the 128 bits of each number times the lower half of the multiplier."""
    of_low, of_high = _MULTIPLIER_LOW & _LOW, _MULTIPLIER_LOW >> _32
    first, second = low & _LOW, low >> _32
    middle = second * of_low + ((first * of_low) >> _32)
    other = first * of_high + (middle & _LOW)
    upper: Words = second * of_high + (middle >> _32) + (other >> _32)
    return upper


def doubles(states: Words) -> NDArray[np.float64]:
    """One ``Generator.random()`` of each stream, shape (n,); the streams move on."""
    values = np.empty(len(states))
    for at in range(0, len(states), _CHUNK):
        its = states[at : at + _CHUNK]
        _advance(its)
        turn = its[:, 1] >> np.uint64(58)
        bits: Words = np.bitwise_xor(its[:, 0], its[:, 1])
        bits = np.bitwise_or(bits >> turn, bits << ((np.uint64(64) - turn) & np.uint64(63)))
        values[at : at + _CHUNK] = (bits >> np.uint64(11)) * 2.0**-53
    return values


class Sampler:
    """A generator that draws from many streams in turn; not for several threads at once.

    Attributes
    ----------
    generator
        Draws from the stream that :meth:`each` has put into it.
    """

    def __init__(self) -> None:
        bits = np.random.PCG64(0)
        self.generator = np.random.Generator(bits)
        self._bits = bits
        self._memory = _memory_of(bits) if _memory_is_known() else None

    def each(self, states: Words, spare: Words | None, streams: NDArray[np.int64]) -> Iterator[int]:
        """Put one stream after the other into the generator; it is taken back when the next one is asked for.

        Parameters
        ----------
        states
            Of all streams, shape (n, 4).
        spare
            Where what is drawn may take half a word: what is left of one, shape (n,): the
            upper half of 33 bits, of which the lowest says whether there is anything.
        streams
            Which of them, in turn.

        Yields
        ------
        int
            How many came before.
        """
        memory = self._memory
        if memory is None:
            yield from self._each_by_its_name(states, spare, streams)
            return
        here, left = memory
        rows = states.view("V32")[:, 0]
        left[0] = 0
        for number, stream in enumerate(streams.tolist()):
            here[0] = rows[stream]
            if spare is not None:
                left[0] = spare[stream]
            yield number
            rows[stream] = here[0]
            if spare is not None:
                spare[stream] = left[0]

    def _each_by_its_name(self, states: Words, spare: Words | None, streams: NDArray[np.int64]) -> Iterator[int]:
        """The same by numpy's own description of a state, which is slower."""
        bits = self._bits
        for number, stream in enumerate(streams.tolist()):
            bits.state = _described(states[stream].tolist(), 0 if spare is None else int(spare[stream]))
            yield number
            state = bits.state
            whole = state["state"]["state"]
            states[stream, 0], states[stream, 1] = whole & 0xFFFF_FFFF_FFFF_FFFF, whole >> 64
            if spare is not None:
                spare[stream] = state["uinteger"] << 32 | state["has_uint32"]


def _described(words: list[int], half: int) -> Any:
    """A stream's state and what it has left of a word, in numpy's words."""
    low, high, increment_low, increment_high = words
    state = {"state": high << 64 | low, "inc": increment_high << 64 | increment_low}
    return {"bit_generator": "PCG64", "state": state, "has_uint32": half & 1, "uinteger": half >> 32}


def _memory_of(bits: np.random.PCG64) -> tuple[NDArray[np.void], Words]:
    """Where a generator keeps its state (32 bytes as one item), and what it has left of a word."""
    at = bits.ctypes.state_address
    state = ctypes.c_uint64.from_address(at).value
    here = memoryview((ctypes.c_char * 32).from_address(state))
    left = memoryview((ctypes.c_char * 8).from_address(at + ctypes.sizeof(ctypes.c_void_p)))
    return np.frombuffer(here, dtype="V32"), np.frombuffer(left, dtype=np.uint64)


@cache
def _memory_is_known() -> bool:
    """Whether this numpy keeps a state where and as this module takes it to."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    words, half = [0x0123456789ABCDEF, 0x1122334455667788, 0x99AABBCCDDEEFF01, 0x13579BDF02468ACE], 0xCAFEF00D
    bits = np.random.PCG64(0)
    bits.state = _described(words, half << 32 | 1)
    # the pointer is followed only where numpy's own object lies around it
    pointed = ctypes.c_uint64.from_address(bits.ctypes.state_address).value
    if not 0 <= pointed - id(bits) < type(bits).__basicsize__ - 31:
        return False
    here, left = _memory_of(bits)
    return here.view(np.uint64).tolist() == words and int(left[0]) == half << 32 | 1
