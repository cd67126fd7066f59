"""One image: from a file of any common kind to RGB in 8 bits, and back without loss.

Every image passes through 8 bits, whatever the file holds: what an attack is given, what it saves and what is
measured later are then the same numbers.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from whorl.errors import WhorlError, out_of_range
from whorl.files import atomic_write, regular, writing

Size = int | tuple[int, int] | None
Pixels = NDArray[np.uint8]

MAX_PIXELS = 80_000_000
"""Images with more pixels than this are refused before they are decompressed."""

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

# Named, so that a file cannot reach decoders that run other programs (EPS starts Ghostscript).
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# What Pillow's decoders raise on damaged files; a fuzz test holds this list to account.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)
# What Pillow converts to RGB by itself and without a colour profile.
_PLAIN_MODES = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV"})


def load_image(path: str | Path, *, size: Size = None, max_pixels: int = MAX_PIXELS) -> Tensor:
    """Read one image.

    Args:
        path: BMP, GIF (first frame), JPEG, PNG, PPM, TIFF or WebP. The EXIF orientation is honoured; gray, palette and
            CMYK become RGB (without colour profiles); transparent parts are laid over white; 16 bits are scaled to 8.
        size: side, or (height, width), to resize the whole image to (bilinear, antialiased, no crop).
        max_pixels: width times height at most, by the file's header, so that nothing larger is decoded, which takes up
            to 16 bytes a pixel.

    Returns:
        (3, H, W) float32 in [0, 1], whole multiples of 1/255.

    Raises:
        WhorlError: the file is absent, damaged, larger than ``max_pixels``, or of a kind that is not listed above.
    """
    return to_tensor(decode(Path(path), size=checked_size(size), max_pixels=max_pixels))


def save_image(path: str | Path, x: Tensor) -> None:
    """Write one image as an 8-bit PNG, rounded to the nearest level; the file appears whole or not at all.

    Args:
        path: where to write; ends in ``.png``. Missing folders are made, an existing file is replaced.
        x: (3, H, W), floating in [0, 1], or the levels themselves as uint8.

    Raises:
        WhorlError: the path is no PNG's or cannot be written to, or ``x`` is not such an image.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_image(f"{folder}/gray.png", torch.full((3, 4, 4), 0.5))
    ...     print(load_image(f"{folder}/gray.png")[0, 0, 0] * 255)
    tensor(128.)
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise WhorlError(
            f"expected a path that ends in .png, got {str(path)!r}. Other formats would change the pixels."
        )
    if x.ndim != 3 or x.shape[0] != 3 or x.numel() == 0 or not (x.is_floating_point() or x.dtype == torch.uint8):
        raise WhorlError(f"expected one floating (3, H, W) image, got {x.dtype} of shape {tuple(x.shape)}.")
    pixels = _levels(x.detach().cpu()).permute(1, 2, 0).contiguous().numpy()
    with writing(path), atomic_write(path) as file:
        # What an attack adds repeats nowhere: to look for repeats takes most of the time, and files are as large.
        Image.fromarray(pixels).save(file, format="PNG", compress_type=zlib.Z_RLE)


def _levels(x: Tensor) -> Tensor:
    """Round an image to 8 bits, unless it is."""
    if x.dtype == torch.uint8:
        return x
    levels = x.float() * 255
    low, high = levels.min().item(), levels.max().item()
    # Half a level may come from arithmetic; NaN fails the comparison too.
    if not (low >= -0.5 and high <= 255.5):
        raise out_of_range(low / 255, high / 255)
    return levels.round().clamp(0, 255).to(torch.uint8)


def decode(
    path: Path, *, size: tuple[int, int] | None, max_pixels: int = MAX_PIXELS, file: IO[bytes] | None = None
) -> Pixels:
    """Read one image as (H, W, 3) uint8; see ``load_image``.

    Args:
        path: of the file, and what errors call it.
        size: (height, width) to resize it to.
        max_pixels: larger ones are refused.
        file: what to read instead of the path's own content, such as a member of an archive.
    """
    with _named(path, max_pixels):
        source = file or regular(path)
        begin = 0 if file is None else file.tell()
        with Image.open(source, formats=_FORMATS) as image:
            if image.format != "PNG":
                return _pixels(image, path, size, max_pixels)
            # Pillow decodes what it can of a damaged PNG, and leaves its last checksums alone: look at them first.
            image.verify()
        if file is not None:
            file.seek(begin)
        with Image.open(source, formats=_FORMATS) as image:
            return _pixels(image, path, size, max_pixels)


def from_pillow(image: Image.Image, name: Path, *, size: tuple[int, int] | None) -> Pixels:
    """Turn an image that Pillow opened, or made, into (H, W, 3) uint8; as ``decode``."""
    with _named(name, MAX_PIXELS):
        return _pixels(image, name, size, MAX_PIXELS, own=False)


@contextmanager
def _named(name: Path, max_pixels: int) -> Iterator[None]:
    """Turn what Pillow's decoders raise into errors that name the image."""
    try:
        yield
    except WhorlError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _bomb(name, "even more", max_pixels) from error
    except FileNotFoundError as error:
        raise WhorlError(f"{name}: no such file. Check the path, or take it off the list.") from error
    except _DAMAGE as error:
        raise unreadable(name, error) from error


def unreadable(path: Path, error: Exception) -> WhorlError:
    """The error for a file that is there and is no image."""
    return WhorlError(f"{path}: cannot be read as an image ({error}). Repair or remove it.")


def _pixels(
    image: Image.Image, name: Path, size: tuple[int, int] | None, max_pixels: int, *, own: bool = True
) -> Pixels:
    """Decode, once its size is known to be in order; what is our ``own`` may be changed."""
    if math.prod(image.size) > max_pixels:
        raise _bomb(name, f"{image.width} × {image.height}", max_pixels)
    if 0 in image.size:
        raise WhorlError(f"{name}: expected an image of at least one pixel, got {image.width} × {image.height}.")
    image.load()
    kind = image.format
    if own:
        ImageOps.exif_transpose(image, in_place=True)  # without a copy of what stands upright already
    else:
        image = ImageOps.exif_transpose(image)
    rgb = _to_rgb(image, kind, name)
    if size is not None and (rgb.height, rgb.width) != size:
        rgb = rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(rgb)


def to_tensor(pixels: Pixels) -> Tensor:
    """Turn (..., H, W, 3) uint8 into (..., 3, H, W) float32 in [0, 1]."""
    return torch.from_numpy(np.moveaxis(pixels, -1, -3).astype(np.float32, order="C")).div_(255)


def checked_size(size: Size) -> tuple[int, int] | None:
    """Turn a size setting into (height, width), or None when images keep their own.

    >>> checked_size(224)
    (224, 224)
    """
    if size is None:
        return None
    pair = size if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2 or any(type(side) is not int or side < 1 for side in pair):
        raise WhorlError(f"size must be a positive whole number or a pair (height, width) of them; got {size!r}.")
    if math.prod(pair) > MAX_PIXELS:
        raise WhorlError(f"size must be {MAX_PIXELS:,} pixels at most; got {size!r}.")
    return pair[0], pair[1]


def _to_rgb(image: Image.Image, kind: str | None, path: Path) -> Image.Image:
    # Mode I is 32 bits, of which PNG and PPM fill 16.
    if image.mode.startswith("I;16") or (image.mode == "I" and kind in {"PNG", "PPM"}):
        # Pillow's own conversion clips at 255 and so turns the image white.
        wide = np.asarray(image).astype(np.uint32)
        wide += 128
        wide //= 257
        return Image.fromarray(wide.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image if image.mode == "RGBA" else image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    if image.mode in _PLAIN_MODES:
        return image if image.mode == "RGB" else image.convert("RGB")
    raise WhorlError(
        f"{path}: expected 8 or 16 bits a channel in gray, RGB, palette or CMYK, got Pillow mode {image.mode!r}. "
        "Convert it to an RGB PNG."
    )


def _bomb(path: Path, size: str, most: int) -> WhorlError:
    return WhorlError(f"{path}: too large; expected {most:,} pixels at most, got {size}. Make it smaller first.")
