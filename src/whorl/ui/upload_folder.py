"""The folder that uploads pass through: how much it may hold, and that nothing of a failed upload stays in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whorl.ui.image import MAX_BYTES

MOST_HELD = 4 * MAX_BYTES
"""Bytes that may lie in the folder or be on their way into it, of all visitors together."""


class UploadFolder:
    """Accounts for one folder. It lives in the server's event loop, so it needs no lock.

    Gradio writes what arrives into files of the folder itself, and moves each into a folder of its own once it is
    whole. Where a visitor leaves in between, or sends what is not understood, it leaves the file behind.

    Args:
        path: the folder; whatever lies in it belongs to the server.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._arriving: list[int] = []

    def has_room_for(self, size: int) -> bool:
        """Whether ``size`` bytes more may come."""
        here = sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())
        # What is arriving counts as whole from its first byte on, whether or not some of it is written.
        return here + sum(self._arriving) + size <= MOST_HELD

    @contextmanager
    def arriving(self, size: int) -> Iterator[None]:
        """Count an upload of ``size`` bytes while the block runs; what none of them finished is deleted after the last.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = UploadFolder(Path(place))
        ...     with folder.arriving(MOST_HELD):
        ...         Path(place, "cut short").touch()
        ...         print(folder.has_room_for(1))
        ...     print(folder.has_room_for(1), list(Path(place).iterdir()))
        False
        True []
        """
        self._arriving.append(size)
        try:
            yield
        finally:
            self._arriving.remove(size)
            if not self._arriving:
                self._clear()

    def _clear(self) -> None:
        for path in self.path.iterdir():
            with suppress(OSError):  # a folder that still holds a whole upload stays
                path.rmdir() if path.is_dir() else path.unlink()
