"""Our attacks called as torchattacks' are: ``atk = as_torchattacks(attack, model); adv = atk(images, labels)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from whorl.attacks.contract import Attack, Model
from whorl.errors import WhorlError
from whorl.evaluation import predictions
from whorl.records import Count, checked
from whorl.runs.networks import device_of

LabelMap = Callable[[Tensor, Tensor], Tensor]

DEFAULT = "default"
BY_LABEL, BY_FUNCTION = "targeted(label)", "targeted(custom)"
RANDOM, LEAST_LIKELY = "targeted(random)", "targeted(least-likely)"


def as_torchattacks(attack: Attack, model: Model, *, seed: int = 0) -> TorchattacksStyle:
    """Bind an attack to a network, in the manner of torchattacks. That library need not be installed.

    Args:
        attack: any of ours, or a peer's.
        model: from (B, C, H, W) images in [0, 1] to (B, classes) logits.
        seed: of all randomness; an image gets the same result in any batch and any call.

    Returns:
        ``atk(images, labels)``, with torchattacks' modes and normalisation, and the attack's settings as attributes.

    >>> import whorl
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(75, 4))
    >>> atk = as_torchattacks(whorl.attack("ai-pgd", eps=8 / 255), net)
    >>> adv = atk(torch.rand(2, 3, 5, 5), torch.tensor([0, 3]))
    >>> atk.eps == 8 / 255, atk.get_mode(), tuple(adv.shape)
    (True, 'default', (2, 3, 5, 5))
    """
    return TorchattacksStyle(attack, model, seed=seed)


class TorchattacksStyle:
    """An attack bound to a network; see :func:`as_torchattacks`.

    Unlike the attacks themselves it has modes that can be changed, as torchattacks' users expect.

    Attributes:
        attack: name of the attack's class.
        whorl_attack: the attack.
        model: what is attacked.
        device: where it is.
        seed: of all randomness.
        targeted: whether labels are to be reached.
        attack_mode: torchattacks' name of the mode.
        supported_mode: the kinds of mode.
        normalization_used: ``{"mean": ..., "std": ...}``, (1, C, 1, 1) each, or None.
    """

    def __init__(self, attack: Attack, model: Model, *, seed: int = 0) -> None:
        self.whorl_attack = attack
        self.attack = type(attack).__name__
        self.seed = seed
        self.supported_mode = ["default", "targeted"]
        self.normalization_used: dict[str, Tensor] | None = None
        self._attacks: dict[str, Any] = {}  # torchattacks' own wrappers walk through these
        self.set_model(model)
        self.set_mode_default()

    def __call__(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        """Attack a batch.

        Args:
            inputs: (B, C, H, W) in [0, 1], or normalised if :meth:`set_normalization_used` was called.
            labels: (B,), to be left, or to be reached in the mode ``targeted(label)``; None takes the model's own
                answers, which makes sense untargeted alone.

        Returns:
            (B, C, H, W), detached, on the model's device, normalised if the inputs are.
        """
        x = self._plain(inputs.to(self.device))
        known = predictions({"the model": self._answers}, x).labels[0, 0] if labels is None else labels
        known = known.to(self.device)
        if not self.targeted:
            return self._normalised(self.whorl_attack(self._network(), x, known, seed=self.seed)).detach()
        if labels is None and self.attack_mode == BY_LABEL:
            raise WhorlError("the mode targeted(label) needs labels, the classes to reach; got none.")
        target = self.get_target_label(x, known)
        return self._normalised(self.whorl_attack(self._network(), x, target=target, seed=self.seed)).detach()

    forward = __call__

    def __getattr__(self, name: str) -> Any:
        # The attack's settings, such as eps and steps. Only what is not found elsewhere is looked for here.
        if name.startswith("_") or name == "whorl_attack":
            raise AttributeError(name)
        try:
            return getattr(self.whorl_attack, name)
        except AttributeError:
            raise AttributeError(f"neither torchattacks' attacks nor {self.whorl_attack!r} have {name!r}") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.whorl_attack!r}, mode={self.attack_mode!r})"

    def set_model(self, model: Model) -> None:
        """Attack another network from now on."""
        self.model = model
        self.model_name = type(model).__name__
        self.device = device_of(model)

    def set_device(self, device: torch.device | str) -> None:
        """Say where the network is, if it has no parameters to tell."""
        self.device = torch.device(device)

    def set_normalization_used(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Say that the network, and so every batch of inputs, is normalised; the ball stays one in [0, 1]."""
        shape = (1, len(mean), 1, 1)
        self.normalization_used = {
            "mean": torch.tensor(mean).reshape(shape),
            "std": torch.tensor(std).reshape(shape),
        }

    def get_mode(self) -> str:
        """The mode, in torchattacks' words."""
        return self.attack_mode

    def set_mode_default(self) -> None:
        """Leave the labels."""
        self._set_mode(DEFAULT, None)

    def set_mode_targeted_by_label(self, quiet: bool = False) -> None:  # noqa: ARG002 - it never speaks
        """Reach the labels."""
        self._set_mode(BY_LABEL, lambda inputs, labels: labels)  # noqa: ARG005 - as torchattacks calls it

    def set_mode_targeted_by_function(self, target_map_function: LabelMap, quiet: bool = False) -> None:  # noqa: ARG002
        """Reach what a function of (images, labels) says."""
        self._set_mode(BY_FUNCTION, target_map_function)

    def set_mode_targeted_random(self, quiet: bool = False) -> None:  # noqa: ARG002
        """Reach a class drawn for each image, other than its label."""
        self._set_mode(RANDOM, self._random_target)

    def set_mode_targeted_least_likely(self, kth_min: int = 1, quiet: bool = False) -> None:  # noqa: ARG002
        """Reach the class that the model finds the ``kth_min``-th least likely."""
        place = checked("kth_min", kth_min, Count)
        self._set_mode(LEAST_LIKELY, lambda x, labels: self._likely(x, labels).kthvalue(place, dim=1).indices)

    def get_target_label(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The classes to reach, (B,), for (B, C, H, W) images in [0, 1] and their labels."""
        if self._target_map is None:
            raise WhorlError("there is no target in the default mode. Call one of the set_mode_targeted methods first.")
        return self._target_map(inputs, labels).to(self.device)

    def _set_mode(self, mode: str, target_map: LabelMap | None) -> None:
        self.attack_mode, self.targeted, self._target_map = mode, target_map is not None, target_map

    def _random_target(self, x: Tensor, labels: Tensor) -> Tensor:
        from whorl.randomness import image_keys, substream, uniform

        others = self._answers(x).shape[1] - 1
        drawn = (uniform(substream(image_keys(x, self.seed), _TARGETS)) * others).long().clamp_max(others - 1)
        return drawn + (drawn >= labels).long()  # steps over the label itself

    def _likely(self, x: Tensor, labels: Tensor) -> Tensor:
        # The label itself is never among the least likely.
        return self._answers(x).scatter(1, labels[:, None], torch.inf)

    @torch.no_grad()
    def _answers(self, x: Tensor) -> Tensor:
        answers: Tensor = self._network()(x)
        return answers

    def _network(self) -> Model:
        if self.normalization_used is None:
            return self.model
        return _Normalising(self.model, *self._statistics())

    def _statistics(self) -> tuple[Tensor, Tensor]:
        assert self.normalization_used is not None  # noqa: S101 - tells mypy what the callers established
        return self.normalization_used["mean"].to(self.device), self.normalization_used["std"].to(self.device)

    def _plain(self, inputs: Tensor) -> Tensor:
        if self.normalization_used is None:
            return inputs
        mean, std = self._statistics()
        return inputs * std + mean

    def _normalised(self, images: Tensor) -> Tensor:
        if self.normalization_used is None:
            return images
        mean, std = self._statistics()
        return (images - mean) / std


# A stream of an image's randomness of its own, beside those of the attacks.
_TARGETS = -7


class _Normalising(nn.Module):
    """Normalises what a network is shown."""

    def __init__(self, model: Model, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model = model
        self.mean, self.std = mean, std

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x - self.mean.to(x.dtype)) / self.std.to(x.dtype))
