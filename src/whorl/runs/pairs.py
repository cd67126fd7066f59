"""Clean images and their adversarial versions side by side, read a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from whorl.data import BadImage, ImageData, Images, iter_images, load_image, open_images
from whorl.data.classes import labelled
from whorl.data.layouts import SAMPLES
from whorl.errors import WhorlError, some_of
from whorl.evaluation import AttackedImages
from whorl.models.labels import shared_labels
from whorl.progress import Progress, silent
from whorl.runs.adversarial import AdversarialFolder, open_adversarial, told_apart
from whorl.runs.images import SAMPLE_SIDE
from whorl.runs.plan import chunk_size


class PairedImages:
    """Batches for ``whorl.evaluation.outcomes``; attacks go by the labels of their folders.

    Settings, and which images are there, are checked at once; images as they are reached.

    Args:
        clean: labelled images, as ``whorl.load_images`` takes them, or "samples" for the bundled photographs.
        adversarial: one folder for each attack; see ``open_adversarial``.
        device: where to put them.
        batch_size: images at a time; None for 8 on a CPU and 64 on a GPU.
        limit: take only the first so many clean images.
        size: side in pixels to resize all images to.
        skip_bad: leave out images that are missing in some folder, unreadable or of another size, instead of stopping
            at the first. An image left out of one folder is left out of all: attacks are compared on the same ones.

    Attributes:
        folders: the adversarial ones.
        left_out: images that were left out so far.

    Raises:
        WhorlError: a bad setting or folder, or an adversarial image without a clean one or the other way round.
    """

    def __init__(
        self,
        clean: ImageData,
        adversarial: Sequence[str | Path],
        *,
        device: torch.device | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        size: int | None = None,
        skip_bad: bool = False,
    ) -> None:
        self.folders = told_apart(open_adversarial(Path(path)) for path in adversarial)
        self.device = device or torch.device("cpu")
        if size is None and str(clean) == str(SAMPLES) and not SAMPLES.exists():
            size = SAMPLE_SIDE  # as they are attacked
        self.size, self.skip_bad = size, skip_bad
        self.left_out: list[BadImage] = []
        some = chunk_size(self.device, batch_size)
        self._images = iter_images(clean, batch_size=some, limit=limit, size=size, skip_bad=skip_bad)
        self._clean, self._entries = clean, list(open_images(clean).entries())
        self._labels: dict[str, int | None] = {}
        listed = [entry.id for entry in self._entries]
        self._wanted, known = listed[:limit], frozenset(listed)
        for folder in self.folders:
            extra = [name for name in folder.files if name not in known]
            if skip_bad:
                reasons = {name: f"{folder.files[name]}: there is no clean image {name!r}" for name in extra}
                self.left_out += [BadImage(path=folder.files[name], id=name, reason=reasons[name]) for name in extra]
            else:
                self._require_same(folder, extra, clean)

    def batches(
        self, networks: Mapping[str, object] | None = None, progress: Progress = silent
    ) -> Iterator[AttackedImages]:
        """Read them, once.

        Args:
            networks: that are to be evaluated, by name: class folders are matched with their classes.
            progress: called with each batch.

        Raises:
            WhorlError: networks that do not share their classes, class folders that name none of them, or images that
                cannot be used.
        """
        matched = labelled(self._entries, shared_labels(networks or {}), self._clean)
        self._labels = {entry.id: entry.label for entry in matched}
        stage, seen, used, total = "evaluating", 0, 0, len(self._wanted)
        progress(stage, seen, total)
        for images in self._images:
            self.left_out += images.bad
            batch = self._pair(images)
            if batch.ids:
                yield batch
            seen, used = seen + len(images.ids) + len(images.bad), used + len(batch.ids)
            progress(stage, seen, total)
        if not used:
            raise WhorlError(f"none of the {total} images can be used. One of them: {self.left_out[-1].reason}")

    def _require_same(self, folder: AdversarialFolder, extra: list[str], clean: ImageData) -> None:
        missing = [name for name in self._wanted if name not in folder.files]
        if missing:
            raise WhorlError(
                f"{folder.path} lacks {len(missing)} of {len(self._wanted)} clean images: {some_of(missing)}. It holds "
                f"{some_of(list(folder.files))}. Take fewer (limit), or leave out what is missing (skip_bad)."
            )
        if extra:
            raise WhorlError(
                f"{folder.path} holds what {clean} does not: {some_of(extra)}. Remove it, or leave it out (skip_bad)."
            )

    def _pair(self, images: Images) -> AttackedImages:
        versions: dict[str, list[Tensor]] = {folder.label: [] for folder in self.folders}
        good: list[int] = []
        for i, name in enumerate(images.ids):
            read = self._read_all(name, images.x[i])
            if read is not None:
                good.append(i)
                for label, image in read.items():
                    versions[label].append(image)
        stacked = {label: torch.stack(column).to(self.device) for label, column in versions.items() if column}
        ids = [images.ids[i] for i in good]
        y = torch.tensor([self._labels[name] for name in ids], dtype=torch.int64)
        return AttackedImages(images.x[good].to(self.device), stacked, y.to(self.device), ids)

    def _read_all(self, name: str, clean: Tensor) -> dict[str, Tensor] | None:
        """Read an image's adversarial versions by label; None if it is to be left out."""
        versions = {}
        for folder in self.folders:
            try:
                versions[folder.label] = self._read(folder, name, clean)
            except WhorlError as error:
                if not self.skip_bad:
                    raise
                path = folder.files.get(name, folder.path / f"{name}.png")
                self.left_out.append(BadImage(path=path, id=name, reason=str(error)))
                return None
        return versions

    def _read(self, folder: AdversarialFolder, name: str, clean: Tensor) -> Tensor:
        if name not in folder.files:
            raise WhorlError(f"{folder.path}: there is no image {name!r}.")
        image = load_image(folder.files[name], size=self.size)
        if image.shape != clean.shape:
            raise WhorlError(
                f"{folder.files[name]}: expected (height, width) {tuple(clean.shape[1:])}, as the clean image; got "
                f"{tuple(image.shape[1:])}. Resize both (size) to what the attack worked at."
            )
        return image
