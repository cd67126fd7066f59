"""Clean images and their adversarial versions side by side, read a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from whorl.data import BadImage, ImageData, load_image, open_images
from whorl.data.classes import labelled
from whorl.data.image_files import checked_size
from whorl.data.images import collect
from whorl.data.layouts import SAMPLES, ListedImage
from whorl.errors import WhorlError, some_of
from whorl.evaluation import AttackedImages
from whorl.files import sha256_of
from whorl.models.labels import shared_labels
from whorl.progress import Progress
from whorl.records import Count, checked
from whorl.runs.adversarial import AdversarialFolder, open_adversarial, told_apart
from whorl.runs.images import SAMPLE_SIDE, hashed_images
from whorl.runs.plan import chunk_size


class OtherSizeError(WhorlError):
    """Clean images of two sizes: no single one is bad, so none can be left out."""


class PairedImages:
    """Clean images with their adversarial versions, in batches; attacks go by the labels of their folders.

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
        shape: (3, height, width) of all images; None before one is read.

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
        for what, given in {"limit": limit, "batch_size": batch_size}.items():
            checked(what, given, Count | None)
        self.size, self.skip_bad = checked_size(size), skip_bad
        self.left_out: list[BadImage] = []
        self.shape: tuple[int, ...] | None = None
        self._clean, self._images, self._chunk = clean, open_images(clean), chunk_size(self.device, batch_size)
        self._entries = list(self._images.entries())
        listed = [entry.id for entry in self._entries]
        self._wanted, known = listed[:limit], frozenset(listed)
        for folder in self.folders:
            extra = [name for name in folder.files if name not in known]
            if skip_bad:
                reasons = {name: f"{folder.files[name]}: there is no clean image {name!r}" for name in extra}
                self.left_out += [BadImage(path=folder.files[name], id=name, reason=reasons[name]) for name in extra]
            else:
                self._require_same(folder, extra, clean)

    def chunks(self, networks: Mapping[str, object], progress: Progress) -> Iterator[list[ListedImage]]:
        """Give the clean images as listed, a batch at a time; those that cannot be used are found in ``read``.

        Args:
            networks: that are to be evaluated, by name: class folders are matched with their classes.
            progress: called with each batch.

        Raises:
            WhorlError: networks that do not share their classes, or class folders that name none of them; at the end,
                if every image was left out.
        """
        stage, total = "evaluating", len(self._wanted)
        matched = list(labelled(self._entries, shared_labels(networks), self._clean))[:total]
        progress(stage, 0, total)
        for start in range(0, total, self._chunk):
            yield matched[start : start + self._chunk]
            progress(stage, min(start + self._chunk, total), total)
        unused = {bad.id for bad in self.left_out}
        if all(name in unused for name in self._wanted):
            raise WhorlError(f"none of the {total} images can be used. One of them: {self.left_out[-1].reason}")

    def hashes(self, chunk: Sequence[ListedImage]) -> list[list[object]]:
        """All that the pixels of a chunk depend on: label and hash of each clean file, and hashes of its versions."""

        def version(path: Path | None) -> str:
            try:
                return "" if path is None else sha256_of(path)
            except OSError:  # said when it is read
                return ""

        return [
            [
                entry.id,
                entry.label,
                self._digests[entry.id],
                *(version(one.files.get(entry.id)) for one in self.folders),
            ]
            for entry in chunk
        ]

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Hash of each clean image, by id; of all at once, for some data sets are streams, which go forward only."""
        wanted = self._entries[: len(self._wanted)]
        return {image.entry.id: image.sha256 for image in hashed_images(self._images, wanted)}

    def read(self, chunk: Sequence[ListedImage]) -> AttackedImages:
        """Decode a chunk with all versions of its images; those that are left out are added to ``left_out``."""
        clean, labels, ids = [], [], []
        versions: dict[str, list[Tensor]] = {folder.label: [] for folder in self.folders}
        for entry in chunk:
            path = entry.path
            try:
                x, y, _ = collect(self._images, [entry], size=self.size)
                self._check_shape(x[0], path)
                read = {}
                for folder in self.folders:
                    path = folder.files.get(entry.id, folder.path / f"{entry.id}.png")
                    read[folder.label] = self._read(folder, entry.id, x[0])
            except WhorlError as error:
                if not self.skip_bad or isinstance(error, OtherSizeError):
                    raise
                self.left_out.append(BadImage(path=path, id=entry.id, reason=str(error)))
                continue
            clean.append(x)
            labels.append(y)
            ids.append(entry.id)
            for label, image in read.items():
                versions[label].append(image)
        if not ids:
            return AttackedImages(torch.empty(0), {}, torch.empty(0), [])
        stacked = {label: torch.stack(column).to(self.device) for label, column in versions.items()}
        return AttackedImages(torch.cat(clean).to(self.device), stacked, torch.cat(labels).to(self.device), ids)

    def _check_shape(self, image: Tensor, path: Path) -> None:
        shape = tuple(image.shape)
        self.shape = self.shape or shape
        if shape != self.shape:
            raise OtherSizeError(
                f"expected images of one size (height, width), got {self.shape[1:]} before and {path} of {shape[1:]}. "
                "Set size to resize them all."
            )

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

    def _read(self, folder: AdversarialFolder, name: str, clean: Tensor) -> Tensor:
        image = load_image(folder.file(name), size=self.size)
        if image.shape != clean.shape:
            raise WhorlError(
                f"{folder.files[name]}: expected (height, width) {tuple(clean.shape[1:])}, as the clean image; got "
                f"{tuple(image.shape[1:])}. Resize both (size) to what the attack worked at."
            )
        return image
