"""A network's graph while it is rewritten: what its nodes are, who sees them, and putting others in their place."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from whorl.models.backward import scale_gradient
from whorl.models.prepared.fold import ChannelAffine
from whorl.models.prepared.layers import AveragePool, Concatenation, Convolution, MaxPool, Rectifier
from whorl.models.prepared.pointwise import Activation

_RELUS = (F.relu, torch.relu, F.relu_, torch.relu_)


class Following(NamedTuple):
    """What an activation is: its name, and the sharpness of its derivative if that is a smooth one's."""

    act: Activation = "none"
    smooth: float | None = None


class NetworkGraph:
    """A graph and its modules; what is added is numbered.

    Args:
        module: the network as it was read.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        self.module, self.graph = module, module.graph
        self.modules: dict[str, nn.Module] = dict(module.named_modules())
        self.added = 0

    def called(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls."""
        return self.modules.get(str(node.target)) if node.op == "call_module" else None

    def only_user(self, node: fx.Node) -> fx.Node | None:
        """The one that sees a node, if no other does."""
        users = list(node.users)
        # Twice by the same user, as in x + x, is not once.
        return users[0] if len(users) == 1 and users[0].all_input_nodes.count(node) == 1 else None

    def tensor(self, value: Any) -> Tensor | None:
        """The constant behind an argument."""
        if isinstance(value, fx.Node) and value.op == "get_attr":
            found: Any = self.module
            for name in str(value.target).split("."):
                found = getattr(found, name)
            return found if isinstance(found, Tensor) else None
        return value if isinstance(value, Tensor) else None

    def norm(self, node: fx.Node | None) -> ChannelAffine | None:
        """The batch norm that a node is, if it is one in eval mode."""
        if node is None:
            return None
        module = self.called(node)
        if type(module) is nn.BatchNorm2d:
            if module.training:
                return None
            return _exact(module.running_mean, module.running_var, module.weight, module.bias, module.eps)
        if node.op == "call_function" and node.target is F.batch_norm:
            names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
            given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
            mean, variance, weight, bias = (self.tensor(given.get(name)) for name in names[1:5])
            found = (mean, variance, weight, bias)
            missing = any(
                one is None and given.get(name) is not None for one, name in zip(found, names[1:5], strict=True)
            )
            eps = given.get("eps", 1e-5)
            if given.get("training", False) is not False or missing or not isinstance(eps, float):
                return None
            return _exact(mean, variance, weight, bias, eps)
        return None

    def activation(self, node: fx.Node | None) -> Following | None:
        """The activation that a node is, if it is one that is known here."""
        if node is None:
            return None
        module = self.called(node)
        if isinstance(module, Rectifier):
            return Following(module.act, module.smooth)
        if type(module) is nn.ReLU:
            return Following("relu")
        if type(module) is nn.ReLU6:
            return Following("relu6")
        if node.op == "call_function" and (node.target in _RELUS):
            return Following("relu")
        if node.op == "call_function" and node.target is F.relu6:
            return Following("relu6")
        return Following("relu") if node.op == "call_method" and node.target in ("relu", "relu_") else None

    def factor(self, node: fx.Node | None) -> float | None:
        """The factor on the gradient of what a node passes on as it is, if it does that."""
        if node is None or node.op != "call_function" or node.target is not scale_gradient:
            return None
        factor = node.args[1]
        assert isinstance(factor, float)  # noqa: S101 - the reader put it there
        return factor

    def in_place(self, node: fx.Node) -> bool:
        """Whether a node may overwrite one of its inputs."""
        if getattr(self.called(node), "inplace", False) or node.kwargs.get("inplace"):
            return True
        if node.op == "call_method":
            return str(node.target).endswith("_")
        if node.op == "call_function":
            name = getattr(node.target, "__name__", "")
            return name.endswith("_") or name == "setitem" or (name.startswith("i") and hasattr(operator, name))
        return False

    def changed_in_place(self, node: fx.Node) -> bool:
        """Whether some user may overwrite what a node gives."""
        same = [user for user in node.users if self.factor(user) is not None]  # they give the same tensor on
        return any(map(self.in_place, node.users)) or any(map(self.changed_in_place, same))

    def has_silent_effects(self) -> bool:
        """Whether something is overwritten by a node that nobody asks, which the graph therefore does not show."""
        return any(self.in_place(node) and not node.users for node in self.graph.nodes)

    def overwritten(self, node: fx.Node) -> bool:
        """Whether a tensor, or something that may be a view of it, may be overwritten."""
        waiting, seen = list(node.users), set()
        while waiting:
            user = waiting.pop()
            if self.in_place(user):
                return True
            fresh = isinstance(self.called(user), Convolution | MaxPool | AveragePool | Concatenation)
            if user not in seen and not fresh:
                waiting += user.users
            seen.add(user)
        return False

    # -- writing ------------------------------------------------------------------------------------------------------

    def add_module(self, module: nn.Module) -> str:
        """Take a module in; give its name."""
        name = f"fast_{self.added}"
        self.added += 1
        self.module.add_submodule(name, module)
        self.modules[name] = module
        return name

    def replace(
        self, last: fx.Node, module: nn.Module, args: tuple[fx.Node, ...], between: Sequence[fx.Node]
    ) -> fx.Node:
        """Put a module where ``last`` was, and take out what it stands for, last first."""
        with self.graph.inserting_before(last):
            new = self.graph.call_module(self.add_module(module), args)
        last.replace_all_uses_with(new)
        for node in (last, *between):
            self.graph.erase_node(node)
        return new


def _exact(
    mean: Tensor | None, variance: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
) -> ChannelAffine | None:
    """In float64, for it is multiplied into weights that are rounded once."""
    exact = [None if value is None else value.double() for value in (mean, variance, weight, bias)]
    return ChannelAffine.of(exact[0], exact[1], exact[2], exact[3], eps)


def pair(value: Any) -> tuple[int, int] | None:
    """What torch takes as one number or two; None for what is neither."""
    if isinstance(value, int):
        return value, value
    if not isinstance(value, tuple | list) or not value or not all(isinstance(one, int) for one in value):
        return None
    return (int(value[0]), int(value[-1])) if len(value) <= 2 else None


def square(value: Any) -> int | None:
    """The same where both are equal."""
    both = pair(value)
    return both[0] if both is not None and both[0] == both[1] else None


_T = TypeVar("_T")


def sure(value: _T | None) -> _T:
    """What is there, as the caller has just seen."""
    assert value is not None  # noqa: S101 - tells mypy what the caller has found out
    return value
