"""Shares of a batch side by side: the results of one thread, whatever the number of threads; and every end of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TypeGuard

import pytest
import torch
from torch import Tensor, nn

import whorl
from conftest import CLASSES, random_images, small_net
from whorl.errors import WhorlError
from whorl.evaluation import PAPER_POSES, predictions
from whorl.models.prepared.copies import copies, shares, side_by_side
from whorl.models.prepared.fold import KeptConvolution
from whorl.progress import Stopped, count_work, listening, piece_of_work

SIDE = 18


@pytest.fixture(autouse=True)
def as_many_threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def classifier(seed: int = 0) -> whorl.Classifier:
    torch.manual_seed(seed)
    return whorl.Classifier.from_module(small_net(), size=SIDE, mean=(0.5,) * 3, std=(0.25,) * 3)


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (5, 1), (5, 2), (7, 3), (3, 8)])
def test_shares_are_all_of_a_batch_and_about_equal(count: int, threads: int) -> None:
    torch.set_num_threads(threads)
    parts = shares(count)
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(count))
    sizes = [part.stop - part.start for part in parts]
    assert len(sizes) == min(count, threads)
    assert max(sizes) - min(sizes) <= 1


def test_each_share_has_a_thread_of_its_own_and_no_further_ones() -> None:
    torch.set_num_threads(2)
    together = threading.Barrier(3)

    def work(place: int) -> tuple[int, int, bool]:
        together.wait(timeout=60)  # so they are there at once
        return place, torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        assert side_by_side(work, 3) == [(place, 1, False) for place in range(3)]
    assert torch.get_num_threads() == 2
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2], "a thread that begins afterwards has as many as before"


def test_what_one_share_raises_is_raised_and_the_others_end() -> None:
    torch.set_num_threads(2)
    ended: list[BaseException] = []

    def work(place: int) -> None:
        if place == 1:
            raise WhorlError("no more")
        try:
            while True:
                count_work(1, "gradients")
        except Stopped as error:
            ended.append(error)
            raise

    with pytest.raises(WhorlError, match="no more"):
        side_by_side(work, 2)
    assert len(ended) == 1


def test_shares_count_what_they_do_of_the_whole() -> None:
    torch.set_num_threads(2)
    told: list[tuple[str, int, int]] = []

    def work(_: int) -> None:
        for _ in range(6):
            count_work(1, "gradients")

    with listening(lambda *said: told.append(said)), piece_of_work("mine", 12, "gradients"):
        side_by_side(work, 2)
    assert told == [("mine", done, 12) for done in range(1, 7)]


@pytest.mark.parametrize("name", ["fgsm", "pgd", "ai-dim", "ai-best", "ram", "eot"])
@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.filterwarnings("ignore:.*has no branch")
def test_an_attack_does_not_depend_on_the_number_of_threads(name: str, early_stop: bool) -> None:
    clf, x = classifier(), random_images(5)
    y = clf(x).argmax(1)
    attack = whorl.attack(name, early_stop=early_stop, **({} if name == "fgsm" else {"steps": 3}))
    made: list[Tensor] = []
    for threads in (1, 2, 5, 8):
        torch.set_num_threads(threads)
        adv, info = attack(clf, x, y, seed=1, return_info=True)
        made.append(adv)
        assert info.grad_evals is not None
        assert len(info.grad_evals) == len(x)
        assert torch.equal(adv, made[0]), threads
        assert torch.equal(attack(clf, x[:1], y[:1], seed=1), made[0][:1]), threads


def test_an_ensemble_s_images_do_not_depend_on_the_number_of_threads() -> None:
    both, x = whorl.Ensemble([classifier(), classifier(1)]), random_images(3)
    y = both(x).argmax(1)
    torch.set_num_threads(1)
    expected = whorl.attack("mim", steps=3)(both, x, y)
    torch.set_num_threads(2)
    assert torch.equal(whorl.attack("mim", steps=3)(both, x, y), expected)


def test_a_gradient_that_is_no_number_is_an_error_in_any_share() -> None:
    torch.set_num_threads(2)
    clf, x = classifier(), random_images(4)
    y = clf(x).argmax(1)

    def breaks(logits: Tensor, labels: Tensor) -> Tensor:
        value = logits.gather(1, labels[:, None])[:, 0]
        return torch.where(labels == y[3], value * torch.nan, value)

    with pytest.raises(WhorlError, match="finite"):
        whorl.attack("mim", steps=3, loss=breaks)(clf, x, y)


def test_parts_that_keep_something_are_called_by_one_thread() -> None:
    torch.set_num_threads(2)
    clf, x = classifier(), random_images(4)
    seen: list[tuple[int, int]] = []

    def remembers(gradient: Tensor) -> Tensor:
        seen.append((threading.get_ident(), len(gradient)))
        return gradient

    whorl.attack("mim", steps=3, estimator=remembers)(clf, x, clf(x).argmax(1))
    assert seen == [(threading.get_ident(), 4)] * 3


def test_answers_are_the_network_s_and_do_not_depend_on_threads_or_batch() -> None:
    clf, x = classifier(), random_images(5)
    poses = PAPER_POSES[:3]
    with torch.no_grad():
        plain = torch.stack([torch.stack([clf(pose.apply(x)).softmax(1).amax(1) for pose in poses])])
    found = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        found.append(predictions({"mine": clf}, x, poses).probabilities)
        one = predictions({"mine": clf}, x[2:3], poses).probabilities
        assert torch.equal(one, found[0][..., 2:3]), threads
    assert all(torch.equal(each, found[0]) for each in found)
    torch.testing.assert_close(found[0], plain.to(found[0].dtype), rtol=1e-4, atol=1e-5)


def test_copies_lie_over_the_same_weights_and_share_layouts() -> None:
    torch.set_num_threads(3)
    clf, x = classifier(), random_images(4)
    kept = copies(clf)
    assert kept is not None
    with torch.no_grad():
        kept(x)
    assert len(kept.all) == 3
    weights = {next(iter(copy.parameters())).data_ptr() for copy in (clf, *kept.all)}
    assert len(weights) == 1
    layouts = [
        [layer.packed for layer in (vars(module).get("forward") for module in copy.modules()) if is_kept(layer)]
        for copy in kept.all
    ]
    assert layouts[0]
    assert all(mine is first for row in layouts[1:] for mine, first in zip(row, layouts[0], strict=True))


def is_kept(layer: object) -> TypeGuard[KeptConvolution]:
    return isinstance(layer, KeptConvolution)


def test_weights_that_change_change_the_answers() -> None:
    clf, x = classifier(), random_images(2)
    before = predictions({"mine": clf}, x).probabilities
    first = copies(clf)
    with torch.no_grad():
        for parameter in clf.parameters():
            parameter.mul_(1.5)
    assert copies(clf) is not first
    after = predictions({"mine": clf}, x).probabilities
    assert not torch.allclose(before, after)
    with torch.no_grad():
        torch.testing.assert_close(after[0, 0], clf(x).softmax(1).amax(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", ["layer", "setting"])
def test_a_layer_that_changes_changes_the_answers(change: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(4 * 16 * 16, CLASSES))
    clf, x = whorl.Classifier.from_module(net, size=SIDE, mean=(0.5,) * 3, std=(0.25,) * 3), random_images(2)
    before = predictions({"mine": clf}, x).probabilities
    if change == "layer":
        net[1] = nn.Tanh()
    else:
        setattr(net[1], "negative_slope", 3.0)  # noqa: B010 - torch's stubs have no such attribute
    after = predictions({"mine": clf}, x).probabilities
    assert not torch.allclose(before, after)
    with torch.no_grad():
        torch.testing.assert_close(after[0, 0], clf(x).softmax(1).amax(1), rtol=1e-4, atol=1e-5)


class Uncopyable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock, self.head = threading.Lock(), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            out: Tensor = self.head(x.mean((2, 3)))
        return out


def test_what_cannot_be_copied_or_is_hooked_is_used_as_it_is() -> None:
    torch.set_num_threads(2)
    x, own = random_images(3), whorl.Classifier.from_module(Uncopyable(), size=SIDE, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert copies(own) is None
    with torch.no_grad():
        expected = own(x).softmax(1).amax(1)
    assert torch.equal(predictions({"mine": own}, x).probabilities[0, 0], expected)
    assert whorl.attack("mim", steps=2)(own, x, own(x).argmax(1)).shape == x.shape
    hooked, calls = classifier(), []
    hooked.net.register_forward_hook(lambda *_: calls.append(1))
    assert copies(hooked) is None
    predictions({"mine": hooked}, x)
    assert calls
    assert copies(small_net()) is None
