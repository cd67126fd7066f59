"""An image that somebody chose: a bundled photograph, or a file of their own, which is held in memory alone."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from whorl.data import load_image
from whorl.data.layouts import ListedImage
from whorl.errors import WhorlError

MAX_BYTES = 25 * 2**20
"""Larger files are refused unread; photographs as cameras and phones save them are smaller."""

MAX_UPLOAD_PIXELS = 32_000_000
"""Images with more are refused by their header: decoding takes up to 16 bytes a pixel, and a page is not worth more."""

_LONGEST_NAME = 80


@dataclass(frozen=True, kw_only=True)
class ChosenImage:
    """A chosen image. It is decoded when a network's size is known, so that it is resized once, not twice.

    Attributes:
        name: what to call it: the file's own name, or what the sample shows.
        id: what randomness is keyed by; safe as a file's name.
        label: the true ImageNet class, 0-based; None if nobody knows.
        source: a file that stays where it is, or the bytes of one that is not kept.
    """

    name: str
    id: str
    label: int | None
    source: Path | bytes = field(repr=False)

    def pixels(self, size: tuple[int, int]) -> Tensor:
        """Decode, as ``whorl.load_images`` does: the whole image, resized to (height, width), in 8 bits.

        Returns:
            (1, 3, H, W) float32 in [0, 1].

        Raises:
            WhorlError: it is no image, is damaged, or has too many pixels.
        """
        if isinstance(self.source, Path):
            return load_image(self.source, size=size)[None]
        # The decoder wants a file. This one is seen by nobody else, and is gone when the block ends.
        with tempfile.TemporaryDirectory(prefix="whorl-") as folder:
            path = Path(folder, "image")
            path.write_bytes(self.source)
            try:
                return load_image(path, size=size, max_pixels=MAX_UPLOAD_PIXELS)[None]
            except WhorlError as error:
                raise WhorlError(str(error).replace(str(path), self.name)) from error


def sample(entry: ListedImage, names: Sequence[str]) -> ChosenImage:
    """Choose a bundled photograph.

    Args:
        entry: from ``whorl.data.layouts.list_samples``.
        names: of ImageNet's classes.
    """
    name = entry.id if entry.label is None else names[entry.label]
    return ChosenImage(name=name, id=entry.id, label=entry.label, source=entry.path)


def upload(path: Path) -> ChosenImage:
    """Take a file that somebody sent: its bytes come into memory, and the file is deleted, whatever becomes of it.

    Args:
        path: the file; nothing of it remains.

    Returns:
        An image that is known to decode.

    Raises:
        WhorlError: it is too large, empty, or no image. The message names the file as its owner knows it.
    """
    name = path.name if len(path.name) <= _LONGEST_NAME else f"{path.name[: _LONGEST_NAME - 1]}…"
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise WhorlError(
                f"{name}: too large; expected {MAX_BYTES / 2**20:g} MB at most, got {size / 2**20:.1f} MB. "
                "Make it smaller first."
            )
        sent = path.read_bytes()
        # Randomness follows from what the file holds, so that the same photograph gives the same images again.
        chosen = ChosenImage(name=name, id=f"upload-{sha256(sent).hexdigest()[:12]}", label=None, source=sent)
    except OSError as error:
        raise WhorlError(f"{name}: did not arrive ({error.strerror}). Send it again.") from error
    finally:
        path.unlink(missing_ok=True)
    chosen.pixels((8, 8))  # finds out now whether it decodes, in the words of the decoder
    return chosen
