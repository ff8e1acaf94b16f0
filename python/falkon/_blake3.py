"""BLAKE3, for the ids of data objects: a few hundred bytes at a time."""

from typing import List, Tuple

_CHUNK_BYTES = 1024
_BLOCK_BYTES = 64
_START, _END, _PARENT, _ROOT = 1, 2, 4, 8
_MASK = 0xFFFFFFFF
_IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19
)  # fmt: skip
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_MIXES = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip

Words = Tuple[int, ...]


def _rotated(word: int, bits: int) -> int:
    return (word >> bits | word << (32 - bits)) & _MASK


def _compressed(value: Words, block: Words, counter: int, length: int, flags: int) -> Words:
    state = [*value, *_IV[:4], counter & _MASK, counter >> 32, length, flags]
    for turn in range(7):
        if turn:
            block = tuple(block[at] for at in _PERMUTATION)
        for at, (a, b, c, d) in enumerate(_MIXES):
            for word, by_d, by_b in ((block[2 * at], 16, 12), (block[2 * at + 1], 8, 7)):
                state[a] = (state[a] + state[b] + word) & _MASK
                state[d] = _rotated(state[d] ^ state[a], by_d)
                state[c] = (state[c] + state[d]) & _MASK
                state[b] = _rotated(state[b] ^ state[c], by_b)
    return tuple(state[at] ^ state[at + 8] for at in range(8))


def _words(data: bytes) -> Words:
    return tuple(int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4))


def _of_chunk(data: bytes, number: int, flags: int) -> Words:
    value: Words = _IV
    for at in range(0, max(len(data), 1), _BLOCK_BYTES):
        block = data[at : at + _BLOCK_BYTES]
        own = _START if at == 0 else 0
        if at + _BLOCK_BYTES >= len(data):
            own |= _END | flags
        padded = _words(block.ljust(_BLOCK_BYTES, b"\0"))
        value = _compressed(value, padded, number, len(block), own)
    return value


def _of_tree(data: bytes, first: int, flags: int) -> Words:
    if len(data) <= _CHUNK_BYTES:
        return _of_chunk(data, first, flags)
    # The left side has as many chunks as there can be, a power of two.
    chunks = 1 << ((len(data) - 1) // _CHUNK_BYTES).bit_length() - 1
    left = _of_tree(data[: chunks * _CHUNK_BYTES], first, 0)
    right = _of_tree(data[chunks * _CHUNK_BYTES :], first + chunks, 0)
    return _compressed(_IV, left + right, 0, _BLOCK_BYTES, _PARENT | flags)


def digest(data: bytes) -> bytes:
    """The hash, 32 bytes."""
    words: List[int] = list(_of_tree(data, 0, _ROOT))
    return b"".join(word.to_bytes(4, "little") for word in words)
