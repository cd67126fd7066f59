"""Which images go on paper: those of a run folder with the clean ones they were made from, or any labelled folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from whorl.data.image_files import decode, to_tensor, unreadable
from whorl.data.layouts import ListedImage, list_images, list_samples
from whorl.errors import WhorlError, unknown_name
from whorl.files import regular
from whorl.physical.sheet import Print
from whorl.records import Count, checked
from whorl.runs.adversarial import AdversarialFolder, open_adversarial, told_apart
from whorl.runs.folder import RunFolder, pixels_sha256

Group = tuple[Print, ...]
"""The versions of one image, the clean one first."""


def collect(
    folder: str | Path,
    *,
    clean: str | Path | None = None,
    attacks: Sequence[str] = (),
    limit: int | None = None,
    size: int | None = None,
) -> list[Group]:
    """List the images to print.

    Args:
        folder: a run folder; or adversarial images named by the clean ones' ids (then ``clean`` is needed); or
            labelled images, which are then printed as they are.
        clean: labelled images that the adversarial ones were made from; a run folder knows them by itself, if they
            are still where they were.
        attacks: print only these of a run folder.
        limit: take only the first so many images, each with all its versions.
        size: side in pixels to print labelled images at; adversarial ones, and the clean ones with them, keep theirs.

    Raises:
        WhorlError: nothing to print, or clean images that are not the ones that were attacked.
    """
    folder = Path(folder)
    checked("limit", limit, Count | None)
    if (folder / "manifest.json").is_file():
        return _from_run(folder, clean, attacks, limit)
    if attacks:
        raise WhorlError(f"attacks can be chosen of a run folder only; {folder} has no manifest.json.")
    if clean is not None:
        adversarial = told_apart([open_adversarial(folder)])
        return _paired(adversarial, _labelled(Path(clean)), limit)
    entries = list_images(folder)[:limit]
    return [(_clean_print(entry, (size, size) if size else _size_of(entry.path)),) for entry in entries]


def _from_run(folder: Path, clean: str | Path | None, attacks: Sequence[str], limit: int | None) -> list[Group]:
    run = RunFolder(folder)
    crafted = run.read()["crafted"]
    known = sorted({entry["attack"] for entry in crafted.values()})
    for name in attacks:
        if name not in known:
            raise unknown_name("attack", name, known, hint=f"{folder} holds: {', '.join(known)}.")
    chosen = [entry for entry in crafted.values() if not attacks or entry["attack"] in attacks]
    if not chosen:
        raise WhorlError(f"{folder} holds no adversarial images. Craft some with `whorl attack` first.")
    opened = told_apart(open_adversarial(run.images(entry["attack"], entry["source"])) for entry in chosen)
    listed = _labelled(Path(clean)) if clean is not None else _where_crafted(chosen)
    return _paired(opened, listed, limit)


def _where_crafted(entries: Sequence[Mapping[str, Any]]) -> dict[str, ListedImage]:
    [place, *others] = dict.fromkeys(str(entry.get("data", {}).get("folder")) for entry in entries)
    if others:
        raise WhorlError(
            f"the attacks of this run were crafted from different images, {place} and {others[0]}. "
            "Choose attacks of one data set."
        )
    if place == "samples":
        return {entry.id: entry for entry in list_samples()}
    if place == "None" or not Path(place).exists():
        raise WhorlError(f"the clean images of this run are not at {place} any more. Say where they are (clean).")
    return _labelled(Path(place))


def _labelled(folder: Path) -> dict[str, ListedImage]:
    return {entry.id: entry for entry in list_images(folder)}


def _paired(
    adversarial: Sequence[AdversarialFolder], clean: Mapping[str, ListedImage], limit: int | None
) -> list[Group]:
    """Put all versions of an image side by side; only images of which all versions are there can be compared."""
    ids = [name for name in clean if all(name in folder.files for folder in adversarial)][:limit]
    if not ids:
        some = next(iter(adversarial[0].files))
        raise WhorlError(
            f"no clean image has all its adversarial versions; {adversarial[0].path} holds {some!r} and others. "
            "Their names must be the clean images' ids."
        )
    return [_group(clean[name], adversarial) for name in ids]


def _group(entry: ListedImage, adversarial: Sequence[AdversarialFolder]) -> Group:
    size = _size_of(adversarial[0].files[entry.id])
    clean = _clean_print(entry, size)
    crafted = [folder.crafted[entry.id] for folder in adversarial if entry.id in folder.crafted]
    if crafted:  # a run has matched class folders with the classes of its networks
        clean = replace(clean, label=crafted[0]["label"], class_name="")
    versions = []
    for folder in adversarial:
        file, facts = folder.file(entry.id), folder.crafted.get(entry.id, {})
        if _size_of(file) != size:
            raise WhorlError(
                f"{file}: expected (height, width) {size}, as other versions of it have; got {_size_of(file)}."
            )
        crafted_from = facts.get("clean_sha256")
        if crafted_from and pixels_sha256(to_tensor(decode(entry.path, size=size))) != crafted_from:
            raise WhorlError(
                f"{entry.path} is not the image that {file} was made from. Say where the clean images are (clean)."
            )
        made = replace(clean, attack=folder.attack, source=folder.source, eps=folder.eps, file=file)
        versions.append(replace(made, grad_evals=facts.get("grad_evals"), seconds=facts.get("seconds")))
    return (clean, *versions)


def _clean_print(entry: ListedImage, size: tuple[int, int]) -> Print:
    if entry.label is None:
        raise WhorlError(f"{entry.fault}. Correct it: without a label no prediction can be judged.")
    name = entry.classes[entry.label] if entry.classes else ""
    return Print(id=entry.id, label=entry.label, class_name=name, file=entry.path, size=size)


def _size_of(file: Path) -> tuple[int, int]:
    try:
        with Image.open(regular(file)) as image:
            return image.height, image.width
    except OSError as error:
        raise unreadable(file, error) from error
