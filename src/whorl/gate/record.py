"""What a gate keeps of itself, ``gate.json``: settings, hashes, versions, verdict, and what became of each image."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl.evaluation import Outcomes, Pose, Verdict
from whorl.files import defined
from whorl.gate.settings import GateSettings
from whorl.runs.done import Done
from whorl.runs.folder import Json, as_json, environment
from whorl.runs.networks import split_target

FORMAT = 1
_NETWORK = "network"  # the one target of a record, whatever it was called


@dataclass(frozen=True, kw_only=True)
class GateRecord:
    """What became of each image, with what it takes to compare it with another gate's.

    Attributes:
        model: what the network is called.
        outcomes: of one target; attacks go by their subject, as in "ai-best, white-box".
        sha256: of each image's pixels.
        labels: of each image, the name of its class.
        attacks: settings of each attack as JSON, by subject.
    """

    model: str
    outcomes: Outcomes
    sha256: tuple[str, ...]
    labels: tuple[str, ...]
    attacks: Mapping[str, Json]

    @classmethod
    def of(cls, done: Done, subjects: Mapping[str, str]) -> GateRecord:
        """Take it from an experiment on one target.

        Args:
            done: what came of it.
            subjects: by the experiment's name of an attack, ``label/source``.
        """
        whole, attacked = done.whole, [chunks[1] for _, chunks in done.plan.by_chunk()]
        classes = {name: label for chunk in attacked for name, label, _ in chunk.images}
        made = {variant.name: variant.attack for variant in done.plan.variants if variant.attack is not None}
        called = done.labels or tuple(str(label) for label in range(1 + max(classes.values())))
        attacks = tuple(subjects[name] for name in whole.attacks)
        outcomes = replace(whole, attacks=attacks, targets=(_NETWORK,), distances={})
        return cls(
            model=whole.targets[0],
            outcomes=outcomes,
            sha256=tuple(digest for chunk in attacked for digest in chunk.clean),
            labels=tuple(called[classes[name]] for name in whole.ids),
            attacks={subjects[name]: as_json(made[name]) for name in whole.attacks},
        )

    @property
    def clean(self) -> Tensor:
        """(P, N) bool: the clean image is recognised."""
        return self.outcomes.clean[0]

    def recognised(self, subject: str) -> Tensor:
        """(P, N) bool: the image is recognised under an attack."""
        return self.outcomes.adversarial[self.outcomes.attacks.index(subject), 0]

    def to_json(self) -> Json:
        """As ``gate.json`` has it."""
        return {
            "poses": [asdict(pose) for pose in self.outcomes.poses],
            "attacks": dict(self.attacks),
            "images": [list(row) for row in zip(self.outcomes.ids, self.labels, self.sha256, strict=True)],
            "outcomes": {
                "about": "base64 of bits, the highest of a byte first: whether recognised, clean and then under each "
                "attack, pose by pose, image by image",
                "bits": b64encode(self.outcomes.to_bits()).decode(),
            },
        }

    @classmethod
    def parsed(cls, text: bytes) -> GateRecord:
        """Read what ``gate.json`` holds; raises anything where it is something else."""
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, expected {FORMAT}")
        ids, labels, sha256 = zip(*content["images"], strict=True)
        outcomes = Outcomes.from_bits(
            b64decode(content["outcomes"]["bits"], validate=True),
            ids=ids,
            attacks=tuple(content["attacks"]),
            targets=(_NETWORK,),
            poses=[Pose(**given) for given in content["poses"]],
        )
        model: str = content["model"]["name"]
        return cls(model=model, outcomes=outcomes, sha256=sha256, labels=labels, attacks=content["attacks"])


def content(record: GateRecord, verdict: Verdict, settings: GateSettings, done: Done, device: torch.device) -> Json:
    """Everything that ``gate.json`` says: the same for the same gate, whenever and however often it was run."""
    [(target, identity)] = done.plan.targets.items()
    network, layers = split_target(target)
    surrogates = {
        variant.source: variant.identity["models"]
        for variant in done.plan.variants
        if variant.attack is not None and variant.source != target
    }
    given: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()
    }
    shown: Json = defined(
        {
            "format": FORMAT,
            "passed": verdict.passed if verdict.rules else None,
            "sentence": verdict.sentence,
            "rules": [asdict(rule) for rule in verdict.rules],
            "accuracy": asdict(verdict.accuracy),
            "posed_accuracy": asdict(verdict.posed_accuracy),
            "rates": [asdict(one) for one in verdict.attacks],
            "changed": {subject: dict(images) for subject, images in verdict.changed.items()},
            "notes": list(verdict.notes),
            "model": {
                "name": verdict.model,
                "address": "+".join((done.declaration.models.get(network, network), *layers)),
                "identity": identity["model"],
            },
            "surrogates": surrogates,
            "settings": given,
            "experiment": done.declaration.model_dump(mode="json"),
            **environment(device),
        }
    )
    return {**shown, **record.to_json()}
