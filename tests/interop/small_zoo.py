"""A small package with the interface of a TransferAttack clone, written here: what the adapter meets there."""

from __future__ import annotations

from pathlib import Path

ABSENT = "whorl_tests_absent_package"
"""Imported by the shared module, used by nothing, and not installed."""

FILES = {
    "__init__.py": """
attack_zoo = {
    "sign": (".gradient.sign", "Sign"),
    "copies": (".gradient.copies", "Copies"),
    "alone": (".gradient.copies", "Alone"),
    "noisy": (".gradient.sign", "Noisy"),
    "feature": (".advanced_objective.feature", "Feature"),
    "pruned": (".advanced_objective.feature", "Pruned"),
    "fixed": (".gradient.fixed", "Fixed"),
    "reach": (".input_transformation.reach", "Reach"),
    "bpa": (".model_related.listed", "Listed"),
    "again": (".model_related.listed", "Again"),
    "builds": (".model_related.listed", "Builds"),
    "filed": (".gradient.needy", "Filed"),
    "fetched": (".gradient.needy", "Fetched"),
    "exits": (".gradient.needy", "Exits"),
    "stray": (".gradient.needy", "Stray"),
    "packaged": (".gradient.packaged", "Packaged"),
    "gone": (".gradient.gone", "Gone"),
    "broken": (".gradient.sign", "Broken"),
    "several": (".ensemble.several", "Several"),
    "generator": (".generation.generator", "Generator"),
}
""",
    "utils.py": f"""
import {ABSENT} as pd
import torch
import torchvision.models as models
from torch import nn


def wrap_model(model):
    raise RuntimeError("would normalise a network of its own")
""",
    "attack.py": """
from .utils import *


class Attack:
    def __init__(self, attack, model_name, epsilon, targeted, random_start, norm, loss, device=None):
        self.name, self.epsilon, self.targeted, self.norm = attack, epsilon, targeted, norm
        self.random_start = random_start
        self.model = self.load_model(model_name)
        self.device = next(self.model.parameters()).device if device is None else device
        self.loss = nn.CrossEntropyLoss()

    def load_model(self, model_name):
        raise RuntimeError(f"would load weights of {model_name}")

    def goal(self, label):
        label = label[1] if self.targeted else label
        return label.to(self.device), -1 if self.targeted else 1

    def __call__(self, *given, **more):
        self.model.eval()
        return self.forward(*given, **more)
""",
    "gradient/sign.py": """
from ..attack import Attack
from ..utils import *


class Sign(Attack):
    def __init__(self, model_name, epsilon=16 / 255, alpha=1.6 / 255, epoch=10, decay=0.0, targeted=False,
                 random_start=False, norm="linfty", loss="crossentropy", device=None, attack="Sign", **kwargs):
        super().__init__(attack, model_name, epsilon, targeted, random_start, norm, loss, device)
        self.alpha, self.epoch, self.decay = alpha, epoch, decay

    def start(self, x):
        return torch.zeros_like(x)

    def shown(self, x):
        return x

    def forward(self, data, label, **kwargs):
        print("crafting")
        x = data.clone().cuda()
        y, sign = self.goal(label)
        if self.targeted:
            assert label.shape == (2, len(x))
        delta = self.start(x)
        for _ in range(self.epoch):
            delta.requires_grad_()
            shown = self.shown(x + delta)
            loss = sign * self.loss(self.model(shown), y.repeat(len(shown) // len(x)))
            step = self.alpha * torch.autograd.grad(loss, delta)[0].sign()
            delta = (delta.detach() + step).clamp(-self.epsilon, self.epsilon)
            delta = (x + delta).clamp(0, 1) - x
        return delta


class Noisy(Sign):
    def start(self, x):
        return torch.empty_like(x).uniform_(-self.epsilon, self.epsilon)
""",
    "gradient/copies.py": """
from .sign import *


class Copies(Sign):
    def shown(self, x):
        return torch.cat([x, x / 2, x / 4])


class Alone(Copies):
    '''An attack of its kind.

    Example: main.py --attack alone --batchsize 1
    '''

    def forward(self, data, label, **kwargs):
        assert len(data) == 1
        return super().forward(data, label)
""",
    "gradient/fixed.py": """
from .sign import *


class Fixed(Sign):
    def __init__(self, **kwargs):
        kwargs["alpha"] = 0.01
        super().__init__(**kwargs)
""",
    "gradient/needy.py": """
from .sign import *


class Filed(Sign):
    def forward(self, data, label, **kwargs):
        return torch.load("./path/to/checkpoints/weights.pth")


class Fetched(Sign):
    def __init__(self, model_name, **kwargs):
        super().__init__(model_name, **kwargs)
        torch.hub.load_state_dict_from_url("https://weights.invalid/whorl-tests.pth")


class Exits(Sign):
    def forward(self, data, label, **kwargs):
        exit()


class Stray(Sign):
    def forward(self, data, label, **kwargs):
        return self.model[1].layer9(data)
""",
    "gradient/packaged.py": "import whorl_tests_other_package\n",
    "gradient/gone.py": "from .missing_module import *\n",
    "advanced_objective/feature.py": """
from ..gradient.sign import *


class Feature(Sign):
    def __init__(self, model_name, layer="1.1", **kwargs):
        super().__init__(model_name, epoch=kwargs.pop("epoch", 2), **kwargs)
        self.seen = None
        found = dict(self.model.named_modules())[layer]
        found.register_forward_hook(self.hook)

    def hook(self, module, given, made):
        self.seen = made

    def forward(self, data, label, **kwargs):
        x = data.clone()
        logits = self.model(x)  # the images take no gradient: what is taken ends at the layer
        weight = torch.autograd.grad(self.loss(logits, label), self.seen)[0]
        delta = torch.zeros_like(x)
        for _ in range(self.epoch):
            delta.requires_grad_()
            self.model(x + delta)
            loss = (weight * self.seen).sum()  # begins at the layer
            delta = (delta.detach() + self.alpha * torch.autograd.grad(loss, delta)[0].sign())
            delta = (x + delta.clamp(-self.epsilon, self.epsilon)).clamp(0, 1) - x
        return delta


class Pruned(Sign):
    def forward(self, data, label, **kwargs):
        self.loss(self.model(data), label).backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.data = parameter.data * (parameter.grad.abs() > parameter.grad.abs().median())
        return super().forward(data, label)
""",
    "input_transformation/reach.py": """
from ..gradient.sign import *


class Reach(Sign):
    def __init__(self, model_name, targeted, attack="Reach", epsilon=16 / 255, lr=1.6 / 255, epoch=300):
        super().__init__(model_name, epsilon, lr, epoch, targeted=targeted, attack=attack)
""",
    "model_related/listed.py": """
from ..gradient.sign import *


class Doubled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


class Listed(Sign):
    def load_model(self, model_name):
        if model_name not in models.__dict__.keys():
            raise ValueError(f"{model_name} is not supported")
        model = models.__dict__[model_name](pretrained=True)
        model[1] = Doubled(model[1])
        return wrap_model(model.eval().cuda())


class Again(Sign):
    def __init__(self, model_name, **kwargs):
        super().__init__(model_name, **kwargs)
        self.model = self.model[1]
        self.model = wrap_model(Doubled(self.model).eval().cuda())


class Builds(Sign):
    def load_model(self, model_name):
        return nn.Flatten()
""",
    "ensemble/several.py": "Several = object\n",
    "generation/generator.py": "Generator = object\n",
}


def write_clone(folder: Path) -> Path:
    """Write the package into a folder as a clone has it; gives the clone's folder."""
    for name, text in FILES.items():
        file = folder / "transferattack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip("\n"), encoding="utf-8")
    return folder
