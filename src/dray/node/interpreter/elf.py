"""What a program or library of Linux says about itself, in the format ELF. Pure."""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Tuple

MAGIC = b"\x7fELF"
SIXTY_FOUR_BITS = 2
ORDERS = {1: "<", 2: ">"}
LOAD, DYNAMIC, INTERPRETER = 1, 2, 3  # kinds of segments
END, STRINGS, SONAME, RPATH, RUNPATH = 0, 5, 14, 15, 29  # tags of dynamic entries
NOTHING = 0x6FFFEE00  # a tag that means nothing to any loader
ENTRY = 16  # bytes of a dynamic entry


class NotElf(Exception):
    """Not a 64-bit program or library."""


class Segment:
    def __init__(self, offset: int, address: int, size: int) -> None:
        self.offset = offset
        self.address = address
        self.size = size


class Elf:
    """A program or library, by its content."""

    def __init__(self, content: bytes) -> None:
        if content[:4] != MAGIC or content[4:5] != bytes([SIXTY_FOUR_BITS]):
            raise NotElf("not a 64-bit program or library")
        try:
            self.content = content
            self.order = ORDERS[content[5]]
            self.segments = self._segments()
            self.entries = list(self._entries())  # tag, value, where the tag is
        except (struct.error, IndexError, KeyError) as error:
            raise NotElf("damaged: {!r}".format(error))

    def _read(self, form: str, offset: int) -> "Tuple[int, ...]":
        return struct.unpack_from(self.order + form, self.content, offset)

    def _segments(self) -> "Dict[int, List[Segment]]":
        (table,) = self._read("Q", 32)
        size, count = self._read("HH", 54)
        found = {}  # type: Dict[int, List[Segment]]
        for number in range(count):
            kind, _, offset, address, _, length = self._read("IIQQQQ", table + number * size)
            found.setdefault(kind, []).append(Segment(offset, address, length))
        return found

    def _entries(self) -> "Iterator[Tuple[int, int, int]]":
        for segment in self.segments.get(DYNAMIC, []):
            for offset in range(segment.offset, segment.offset + segment.size, ENTRY):
                tag, value = self._read("qQ", offset)
                if tag == END:
                    return
                yield tag, value, offset

    def interpreter(self) -> str:
        """Return the path of the loader that the kernel starts for it; "" for a library."""
        for segment in self.segments.get(INTERPRETER, []):
            return self._text(segment.offset)
        return ""

    def soname(self) -> str:
        """Return the name that others know the library by; "" if it has none."""
        values = {tag: value for tag, value, _ in self.entries}
        if SONAME not in values or STRINGS not in values:
            return ""
        return self._text(self._offset_of(values[STRINGS]) + values[SONAME])

    def _offset_of(self, address: int) -> int:
        for segment in self.segments.get(LOAD, []):
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise NotElf("damaged: nothing is loaded at {:#x}".format(address))

    def _text(self, offset: int) -> str:
        end = self.content.find(b"\0", offset)
        if end < 0:
            raise NotElf("damaged: a text without an end")
        return self.content[offset:end].decode("utf-8", "surrogateescape")

    def without_search_paths(self) -> bytes:
        """Return its content without places to look for libraries in: a folder named there comes
        before ``--library-path`` for glibc, and may hold others where the copy is run."""
        changed = bytearray(self.content)
        for tag, _, offset in self.entries:
            if tag in (RPATH, RUNPATH):
                struct.pack_into(self.order + "q", changed, offset, NOTHING)
        return bytes(changed)
