"""Where a link leads, by what it says. Pure."""


def leads_out(path: bytes, link: bytes) -> bool:
    """Return whether a link at this path may lead out of the tree that the path begins in. Behind a
    name that may itself be a link, nobody can tell where '..' leads."""
    parts = [part for part in link.split(b"/") if part not in (b"", b".")]
    up = next((at for at, part in enumerate(parts) if part != b".."), len(parts))
    return not link or link.startswith(b"/") or up > path.count(b"/") or b".." in parts[up:]
