"""Where a black-box attack may start: the images of a folder, named by id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whorl.data.image_files import SUFFIXES, load_image
from whorl.errors import WhorlError
from whorl.randomness import Ids
from whorl.records import Record

_NAMED = 5


@dataclass(frozen=True, repr=False)
class StartFolder(Record):
    """Start images on disk: ``<folder>/<id>.png`` for each image under attack, as ``whorl attack`` writes them.

    Attributes:
        folder: where they lie; any format that :func:`whorl.data.load_image` reads will do.

    >>> import tempfile
    >>> from whorl.data import save_image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_image(f"{folder}/cat.png", torch.ones(3, 8, 8))
    ...     StartFolder(Path(folder)).load(torch.zeros(1, 3, 8, 8), ["cat"]).mean()
    tensor(1.)
    """

    folder: Path

    def path(self, name: str) -> Path:
        """The start image of one id.

        Raises:
            WhorlError: there is none.
        """
        found = self._find(name)
        if found is None:
            raise WhorlError(f"expected a start image {self.folder / name}.png; found none.")
        return found

    def load(self, x: Tensor, ids: Ids) -> Tensor:
        """Read the starts of (B, C, H, W) images ``x`` by their ``ids``: same shape, device and dtype.

        Raises:
            WhorlError: no folder, no ids, an id without an image, or an image of another size.
        """
        if not self.folder.is_dir():
            raise WhorlError(f"init: {self.folder} is no folder. Expected one of start images, named by id.")
        if ids is None:
            raise WhorlError("a folder as init needs ids=, one name per image, to find each image's start; got none.")
        names = [str(name) for name in (ids.tolist() if isinstance(ids, Tensor) else ids)]
        missing = [name for name in names if self._find(name) is None]
        if missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise WhorlError(
                f"init: {self.folder} must hold a start image for each of the {len(names)} images; there is none for "
                f"{', '.join(missing[:_NAMED])}{more}."
            )
        starts = [load_image(self.path(name)) for name in names]
        for name, start in zip(names, starts, strict=True):
            if start.shape != x.shape[1:]:
                height, width = start.shape[1:]
                raise WhorlError(
                    f"init: start images must be {x.shape[3]}x{x.shape[2]} pixels, like the images under attack; "
                    f"that of {name} is {width}x{height}. Craft it on images of the same size."
                )
        return torch.stack(starts).to(x)

    def _find(self, name: str) -> Path | None:
        # PNG first: it is the only one that whorl writes. Not with_suffix: ids may hold dots.
        tried = (self.folder / f"{name}{suffix}" for suffix in (".png", *sorted(SUFFIXES - {".png"})))
        return next((path for path in tried if path.is_file()), None)
