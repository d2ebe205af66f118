"""Which GPUs a compiled CUDA extension holds code for, read from the file itself."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

#: Begins every bundle of images that nvcc puts into an object; sixteen bytes, then the images.
_MAGIC, _BUNDLE, _ENTRY = b"\x50\xed\x55\xba", struct.Struct("<IHHQ"), struct.Struct("<HHIQ")
_PTX, _CUBIN, _ARCH_AT = 1, 2, 28


def images(file: Path) -> frozenset[tuple[str, int]]:
    """Kind and compute capability of every image, such as ("sm", 75) or ("compute", 90).

    The headers are read, not the images: exllamav3 has them compressed, so that no name such
    as sm_75 need appear in the file.
    """
    found: set[tuple[str, int]] = set()
    if file.stat().st_size < _BUNDLE.size:
        return frozenset()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(_MAGIC)
        while at >= 0:
            found |= _bundle(data, at)
            at = data.find(_MAGIC, at + 1)
    return frozenset(found)


def _bundle(data: mmap.mmap, at: int) -> set[tuple[str, int]]:
    if at + _BUNDLE.size > len(data):
        return set()
    _, version, header, size = _BUNDLE.unpack_from(data, at)
    end, found = at + header + size, set()
    if version != 1 or header != _BUNDLE.size or end > len(data):
        return set()  # these four bytes by chance
    at += header
    while at + _ARCH_AT + 4 <= end:
        kind, _, head, body = _ENTRY.unpack_from(data, at)
        (arch,) = struct.unpack_from("<I", data, at + _ARCH_AT)
        if kind in (_PTX, _CUBIN):
            found.add(("compute" if kind == _PTX else "sm", arch))
        if head + body == 0:
            break
        at += head + body
    return found


def runs_on(held: frozenset[tuple[str, int]], capability: tuple[int, int]) -> bool:
    """Whether a GPU can run one of the images: its own generation's, or PTX that is not newer."""
    major, minor = capability
    return any(
        (kind == "sm" and arch // 10 == major and arch % 10 <= minor)
        or (kind == "compute" and arch <= 10 * major + minor)
        for kind, arch in held
    )


def named(held: frozenset[tuple[str, int]]) -> str:
    """ "sm_75, sm_90", PTX as compute_90."""
    return ", ".join(f"{kind}_{arch}" for kind, arch in sorted(held)) or "no GPU"
