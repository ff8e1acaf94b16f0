"""MessagePack, as far as the protocol uses it."""


def pack(value):
    """The MessagePack form of an int from 0 on, bool, str, bytes or list."""
    if value is True:
        return b"\xc3"
    if value is False:
        return b"\xc2"
    if isinstance(value, int):
        if value < 0x80:
            return bytes((value,))
        if value < 1 << 32:
            return b"\xce" + value.to_bytes(4, "big")
        return b"\xcf" + value.to_bytes(8, "big")
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace")
        return b"\xdb" + len(value).to_bytes(4, "big") + value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"\xc6" + len(value).to_bytes(4, "big") + bytes(value)
    return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(pack, value))


def unpack(data, at=0):
    """The value that starts at ``at`` in ``data``, and where it ends."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if 0x90 <= tag < 0xA0:
        return _unpack_items(data, at, tag & 0x0F)
    if 0xA0 <= tag < 0xC0:
        end = at + (tag & 0x1F)
        return str(data[at:end], "utf-8"), end
    if tag == 0xC0:
        return None, at
    if tag in (0xC2, 0xC3):
        return tag == 0xC3, at
    width = _WIDTHS.get(tag)
    if width is None:
        raise ValueError("a MessagePack type that the protocol does not use: 0x%02x" % tag)
    end = at + width
    number = int.from_bytes(data[at:end], "big")
    if 0xCC <= tag <= 0xCF:
        return number, end
    if tag >= 0xDC:
        return _unpack_items(data, end, number)
    value = data[end : end + number]
    if len(value) < number:
        raise ValueError("the message ends in the middle")
    return (bytes(value) if tag <= 0xC6 else str(value, "utf-8")), end + number


_WIDTHS = {
    0xC4: 1, 0xC5: 2, 0xC6: 4,  # bytes
    0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,  # integers
    0xD9: 1, 0xDA: 2, 0xDB: 4,  # text
    0xDC: 2, 0xDD: 4,  # arrays
}  # fmt: skip


def _unpack_items(data, at, count):
    items = []
    for _ in range(count):
        item, at = unpack(data, at)
        items.append(item)
    return items, at
