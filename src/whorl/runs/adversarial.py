"""A folder of adversarial images, whoever made them: which image belongs to which clean one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from whorl.data.image_files import SUFFIXES
from whorl.data.layouts import ids_of, list_images
from whorl.errors import WhorlError, printable
from whorl.files import has_sha256
from whorl.runs.folder import ForeignManifestError, Json, RunFolder, folder_name
from whorl.runs.store import image_facts


@dataclass(frozen=True, kw_only=True)
class AdversarialFolder:
    """Adversarial images by the ids of the clean ones, and what is known of how they were made.

    Attributes:
        path: the folder.
        files: id to image.
        attack: its name, if a manifest has it; else the folder's.
        source: network that it was crafted on; empty if unknown.
        eps: radius of the ball; None if unknown, or if nothing bounds the attack.
        crafted: what is known of each image: label, hash of it and of the clean one, cost; empty without a manifest.
    """

    path: Path
    files: dict[str, Path]
    attack: str
    source: str = ""
    eps: float | None = None
    crafted: Json = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """What to call it in a table."""
        return f"{self.attack} on {self.source}" if self.source else self.attack

    def file(self, name: str) -> Path:
        """Give an image's file, by its id, if it is still what was crafted.

        Raises:
            WhorlError: there is no such image, or a run folder holds another hash of it.
        """
        if name not in self.files:
            raise WhorlError(f"{self.path}: there is no image {name!r}.")
        path, digest = self.files[name], self.crafted.get(name, {}).get("sha256")
        if digest is not None and not has_sha256(path, digest):
            raise WhorlError(
                f"{path} was changed after it was crafted: its SHA-256 is not the one in the run folder. Craft it "
                "again with the same command, or copy the images elsewhere if they are to be used as they are."
            )
        return path

    def spent(self, fact: str, ids: Sequence[str]) -> float | None:
        """Add up what crafting some images took; None unless it is known of all of them."""
        if not all(fact in self.crafted.get(name, ()) for name in ids):
            return None
        return float(sum(self.crafted[name][fact] for name in ids))


def open_adversarial(path: Path) -> AdversarialFolder:
    """List the adversarial images of a folder; none is opened.

    Args:
        path: any folder of images whose paths in it, without suffix, are the clean images' ids, as ``whorl attack``
            writes them below ``adv/<attack>/<source>/``, and as class folders have them; or the NIPS17 layout.

    Raises:
        WhorlError: there is no such folder, or no image in it.
    """
    if not path.is_dir():
        raise WhorlError(f"{path}: no such folder. Expected a folder of adversarial images.")
    tabled = (path / "images.csv").is_file()
    files = {entry.id: entry.path for entry in list_images(path)} if tabled else _images(path)
    if not files:
        raise WhorlError(f"{path} holds no images. Expected adversarial ones, named by the clean images' ids.")
    return _with_manifest(AdversarialFolder(path=path, files=files, attack=printable(path.resolve().name)))


def told_apart(folders: Iterable[AdversarialFolder]) -> list[AdversarialFolder]:
    """Name folders that would share a label by their paths.

    Raises:
        WhorlError: a folder is there twice.
    """
    listed = list(folders)
    labels, paths = Counter(folder.label for folder in listed), Counter(folder.path.resolve() for folder in listed)
    for folder in listed:
        if paths[folder.path.resolve()] > 1:
            raise WhorlError(f"{folder.path} is given more than once. Name each folder of adversarial images once.")
    return [
        replace(folder, attack=printable(str(folder.path))) if labels[folder.label] > 1 else folder for folder in listed
    ]


def _images(folder: Path) -> dict[str, Path]:
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file())
    paths = [path for path in found if not path.name.startswith(".")]
    return dict(zip(ids_of([path.relative_to(folder) for path in paths]), paths, strict=True))


def _with_manifest(folder: AdversarialFolder) -> AdversarialFolder:
    """Add what the manifest of a run folder says, if the images lie in one."""
    place = folder.path.resolve()
    if len(place.parents) < 3 or place.parents[1].name != "adv":
        return folder
    crafted: Json = {}
    with suppress(ForeignManifestError):
        crafted = RunFolder(place.parents[2]).read()["crafted"]
    for entry in crafted.values():
        if entry["attack"] == place.parent.name and folder_name(entry["source"]) == place.name:
            eps = entry.get("settings", {}).get("eps")
            return replace(
                folder,
                attack=entry["attack"],
                source=entry["source"],
                eps=eps if isinstance(eps, float) else None,
                crafted=image_facts(place.parents[2], entry, Path(entry["attack"], place.name)),
            )
    return folder
