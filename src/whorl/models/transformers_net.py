"""Image classifiers of Hugging Face's ``transformers``, from a folder or the hub.

Only safetensors are read, and code that comes with a model is never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from whorl.errors import WhorlError, first_line, imported, some_of
from whorl.models import _torchvision
from whorl.models.architectures import Input, imagenet_labels
from whorl.models.classifier import Resize
from whorl.models.labels import plain

_SHOWN = 640  # side of the image that a processor is given: larger than what any classifier takes
_DIGITS = 6  # of a mean that was measured in float32
_INPUT = ("size", "mean", "std")


class TransformersNet(nn.Module):
    """A classifier of ``transformers`` as a network from normalised images to logits.

    Args:
        model: takes ``pixel_values`` and returns a record with ``logits``.
        bgr: whether its channels are blue, green, red.
    """

    def __init__(self, model: nn.Module, *, bgr: bool = False) -> None:
        super().__init__()
        self.model, self.bgr = model, bgr

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) to (B, classes)."""
        logits: Tensor = self.model(pixel_values=x.flip(1) if self.bgr else x).logits
        return logits


def load_transformers(
    place: str, settings: Mapping[str, str]
) -> tuple[TransformersNet, Input | None, tuple[str, ...] | None]:
    """Load a classifier, with what its image processor does to an image and what its configuration calls the classes.

    Args:
        place: a folder that ``save_pretrained`` wrote, or a name on the hub.
        settings: of the address; ``revision`` is a commit, tag or branch of the hub.

    Returns:
        The network; its input, None if it has no image processor and the settings say it all; its labels, None if they
        are no names.

    Raises:
        WhorlError: the library is missing, or there is no image classifier with all of its weights in safetensors.
    """
    _torchvision.torchvision()  # before transformers, which imports it too
    transformers = imported("transformers", "a Hugging Face classifier", extra="hf")
    folder = Path(place).expanduser()
    where: dict[str, Any] = {"trust_remote_code": False}
    if folder.is_dir():  # a folder that is there is never looked for on the hub
        place, where["local_files_only"] = str(folder), True
    elif "revision" in settings:
        where["revision"] = settings["revision"]
    with _quiet(transformers):
        model = _model(transformers, place, where)
        processor = _processor(transformers, place, where, settings)
    expected, bgr = (None, False) if processor is None else measured_input(processor, place)
    return TransformersNet(model, bgr=bgr), expected, _labels(model)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Bars and reports of what is loaded would stand between whorl's own lines; what is wrong is said in an error."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _model(transformers: Any, place: str, where: Mapping[str, Any]) -> nn.Module:
    try:
        with torch.random.fork_rng(devices=[]):
            model, found = transformers.AutoModelForImageClassification.from_pretrained(
                place, use_safetensors=True, output_loading_info=True, **where
            )
    except Exception as error:  # the library, and each version of it, has its own errors
        raise WhorlError(
            f"hf:{place} could not be loaded ({first_line(error)}). Expected an image classifier of transformers with "
            "weights in safetensors (model.save_pretrained writes them): a folder, or a name on the hub. Check the "
            "name and the connection (HF_ENDPOINT names a mirror, HF_HOME a cache)."
        ) from error
    if missing := sorted(found["missing_keys"]):  # the library would leave these at random, and only warn
        raise WhorlError(
            f"hf:{place} has no weights for {some_of(missing)}: a backbone without a trained classifier. Load a model "
            "that was trained to classify images."
        )
    loaded: nn.Module = model
    return loaded


def _processor(transformers: Any, place: str, where: Mapping[str, Any], settings: Mapping[str, str]) -> Any | None:
    try:
        return transformers.AutoImageProcessor.from_pretrained(place, **where)
    except Exception as error:  # likewise
        if all(key in settings for key in _INPUT):
            return None
        raise WhorlError(
            f"hf:{place} does not say how images are prepared ({first_line(error)}). Save its image processor beside "
            "it (processor.save_pretrained), or append ?size=224&mean=0.5,0.5,0.5&std=0.5,0.5,0.5, or whichever."
        ) from error


def measured_input(processor: Any, place: str) -> tuple[Input, bool]:
    """Find out what an image processor does, by showing it flat images: whatever its class, this is what it does.

    Args:
        processor: takes uint8 images (3, H, W) and returns ``pixel_values``.
        place: the model, for errors.

    Returns:
        Size, mean, standard deviation and resampling; and whether it turns RGB into BGR.

    Raises:
        WhorlError: it fails, or makes something else than one (3, height, width) image of a flat one.
    """

    def shown(*colour: int) -> Tensor:
        image = torch.tensor(colour, dtype=torch.uint8).view(3, 1, 1).expand(3, _SHOWN, _SHOWN)
        values = processor(images=image, return_tensors="pt", input_data_format="channels_first")["pixel_values"]
        return torch.as_tensor(values).double()

    try:
        black, white, red = shown(0, 0, 0), shown(255, 255, 255), shown(255, 0, 0)
    except Exception as error:  # a class of the library's, or a setting of a stranger's
        raise WhorlError(f"the image processor of hf:{place} failed ({first_line(error)}).") from error
    if black.ndim != 4 or black.shape[:2] != (1, 3):
        raise WhorlError(
            f"the image processor of hf:{place} must make one (1, 3, height, width) of an image; got "
            f"{tuple(black.shape)}. Load it in your own code, by python:MODULE:FACTORY."
        )
    height, width = black.shape[2:]
    low, high, only = (part[0, :, height // 2, width // 2] for part in (black, white, red))
    std = 1 / (high - low)
    mean, bgr = -low * std, bool(only[0] == low[0])
    if bgr:
        mean, std = mean.flip(0), std.flip(0)
    bicubic = getattr(processor, "resample", None) == Image.Resampling.BICUBIC
    resize: Resize = "bicubic" if bicubic else "bilinear"
    means, stds = (tuple(round(value, _DIGITS) + 0.0 for value in part.tolist()) for part in (mean, std))
    return Input(size=(height, width), mean=means, std=stds, resize=resize), bgr


def _labels(model: Any) -> tuple[str, ...] | None:
    """The names of the classes; None where they are the library's LABEL_0, LABEL_1 and so on."""
    named = {int(place): str(label) for place, label in model.config.id2label.items()}
    labels = tuple(named.get(place, str(place)) for place in range(model.config.num_labels))
    if all(label == f"LABEL_{place}" for place, label in enumerate(labels)):
        return None
    # ImageNet's classes come with all their synonyms here ("tench, Tinca tinca"), and by the first one elsewhere.
    if len(labels) == 1000:
        usual = imagenet_labels()
        same = sum(plain(usual[i]) in map(plain, label.split(",")) for i, label in enumerate(labels))
        return usual if same > 900 else labels
    return labels
