"""Times that HDF5 writes into the headers of objects on its own: taken out, so that equal results are equal bytes.

Source: HDF5 File Format Specification Version 3.0, II.A (superblock), IV.A.1.b (object header, version 2), and Bob
Jenkins's lookup3 for the checksum.
"""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = rb"OHDR\x02"
_VERSION: Final = 8  # of the superblock
_ROOT_ADDRESS: Final = 36  # in a superblock of version 2 or 3 with addresses of 8 bytes
_TIMES_STORED: Final = 0x20
_PHASE_STORED: Final = 0x10
_WORD: Final = 0xFFFFFFFF


def clear_times(image: memoryview) -> None:
    """Set the times of every object in a file to zero, and the checksums of their headers accordingly."""
    for found in re.finditer(_HEADER, image):
        _clear(image, found.start())


def clear_root_times(image: memoryview) -> None:
    """The same of the root group only, all that HDF5 renews when attributes of the file change."""
    if image[_VERSION] in {2, 3}:
        _clear(image, int.from_bytes(image[_ROOT_ADDRESS : _ROOT_ADDRESS + 8], "little"))


def _clear(image: memoryview, header: int) -> None:
    flags = image[header + 5]
    at = header + 22 + (4 if flags & _PHASE_STORED else 0)
    width = 1 << (flags & 3)
    stop = at + width + int.from_bytes(image[at : at + width], "little")
    if not flags & _TIMES_STORED or stop + 4 > len(image):
        return
    if lookup3(bytes(image[header:stop])) == int.from_bytes(image[stop : stop + 4], "little"):  # a header indeed
        image[header + 6 : header + 22] = bytes(16)
        image[stop : stop + 4] = lookup3(bytes(image[header:stop])).to_bytes(4, "little")


def lookup3(data: bytes) -> int:
    """The hash of `data` that HDF5 keeps of its metadata.

    >>> hex(lookup3(b"")), hex(lookup3(b"Four score and seven years ago"))
    ('0xdeadbeef', '0x17770551')
    """
    words = [(0xDEADBEEF + len(data)) & _WORD] * 3
    last = max(0, (len(data) - 1) // 12 * 12)
    for start in range(0, last, 12):
        words = _added(words, data[start : start + 12])
        for place, turn in enumerate((4, 6, 8, 16, 19, 4)):
            x, y, z = place % 3, (place + 1) % 3, (place + 2) % 3
            words[x] = ((words[x] - words[z]) & _WORD) ^ _turned(words[z], turn)
            words[z] = (words[z] + words[y]) & _WORD
    if data:
        words = _added(words, data[last:].ljust(12, b"\0"))
        for place, turn in enumerate((14, 11, 25, 16, 4, 14, 24)):
            x, y = (place + 2) % 3, (place + 1) % 3
            words[x] = ((words[x] ^ words[y]) - _turned(words[y], turn)) & _WORD
    return words[2]


def _added(words: list[int], block: bytes) -> list[int]:
    stated = (int.from_bytes(block[place : place + 4], "little") for place in (0, 4, 8))
    return [(word + more) & _WORD for word, more in zip(words, stated, strict=True)]


def _turned(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _WORD
