"""Memory that ends where the page after it may not be touched: one byte too far is a crash."""

from __future__ import annotations

import ctypes
import mmap

from ccore import ffi

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


class Guarded:
    """Room for up to `size` bytes, handed out as near to the forbidden page as `align` permits."""

    def __init__(self, size: int) -> None:
        self.room = -(-size // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, self.room + _PAGE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        last = ctypes.c_void_p(self._start + self.room)
        if _LIBC.mprotect(last, ctypes.c_size_t(_PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def put(self, data: bytes, align: int = 1) -> object:
        """Copies data to the end and returns where it lies, as uint8_t *."""
        offset = (self.room - len(data)) // align * align
        self._map[offset : offset + len(data)] = data
        return ffi.cast("uint8_t *", self._start + offset)
