"""Which synthetic image spreads a network's activations as photographs do: what sharpness relative to them relies on.

    python benchmarks/spreads.py --data NIPS17_FOLDER

For each network and each probe: the mean, over the inputs of all rectifiers, of log2(spread on the probe / mean spread
on the photographs), and the standard deviation of that. 0.0 and 0.0 would be the same everywhere.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

import whorl
from judge import Data

NAMES = ("resnet18", "mobilenet_v2", "efficientnet_lite0", "inception_v3")


def coloured(count: int, size: tuple[int, int], power: float, shared: float, std: float = 0.25) -> Tensor:
    """Noise whose amplitude falls as 1 / f**power, one share of it the same in all channels."""
    height, width = size
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(count, 4, height, width, generator=generator, dtype=torch.float64)
    rows = torch.fft.fftfreq(height, dtype=torch.float64)[:, None]
    columns = torch.fft.rfftfreq(width, dtype=torch.float64)[None]
    frequency = (rows**2 + columns**2).sqrt()
    frequency[0, 0] = math.inf
    field = torch.fft.irfft2(torch.fft.rfft2(white) / frequency**power, s=size)
    field = field / field.std((-2, -1), keepdim=True)
    mixed = shared**0.5 * field[:, :1] + (1 - shared) ** 0.5 * field[:, 1:]
    return (0.45 + std * mixed).clamp(0, 1).float()


PROBES: Mapping[str, Callable[[int, tuple[int, int]], Tensor]] = {
    "uniform": lambda n, s: torch.rand(n, 3, *s, generator=torch.Generator().manual_seed(0)),
    "1/f": lambda n, s: coloured(n, s, 1.0, 0.9),
    "1/f, std 0.2": lambda n, s: coloured(n, s, 1.0, 0.9, 0.2),
    "1/f, std 0.3": lambda n, s: coloured(n, s, 1.0, 0.9, 0.3),
    "1/f^1.25": lambda n, s: coloured(n, s, 1.25, 0.9),
    "1/f^1.5": lambda n, s: coloured(n, s, 1.5, 0.9),
    "1/f^1.25, std 0.3": lambda n, s: coloured(n, s, 1.25, 0.9, 0.3),
    "1/f^1.25, grey 0.7": lambda n, s: coloured(n, s, 1.25, 0.7),
    "1/f^1.5, grey 0.7": lambda n, s: coloured(n, s, 1.5, 0.7),
}


def spreads(model: nn.Module, x: Tensor) -> Tensor:
    """Standard deviation of what goes into each rectifier, of each image: (B, rectifiers)."""
    found: dict[nn.Module, list[Tensor]] = {}

    def see(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        found.setdefault(module, []).append(given[0].var())

    handles = [m.register_forward_pre_hook(see) for m in model.modules() if isinstance(m, nn.ReLU | nn.ReLU6)]
    every = []
    with torch.no_grad():
        for one in x.split(1):
            found.clear()
            model(one)
            every.append(torch.stack([torch.stack(seen).mean().sqrt() for seen in found.values()]))
    for handle in handles:
        handle.remove()
    return torch.stack(every)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--networks", default=",".join(NAMES))
    options = parser.parse_args()
    data = Data.load(options.data, options.n, 299, "cpu")
    for name in options.networks.split(","):
        model = whorl.load_model(name)
        photographs = spreads(model, data.x)
        mean = photographs.square().mean(0).sqrt()
        print(f"{name}: {len(mean)} rectifiers, spreads {mean.min():.2f} to {mean.max():.2f}, "
              f"late half {mean[len(mean) // 2:].mean():.2f}", flush=True)
        print("   ", " ".join(f"{v:.2f}" for v in mean.tolist()))
        single = (photographs / mean).log2()
        print(f"    one photograph     {single.mean():+.3f}  ±{single.std():.3f}")
        for probe, make in PROBES.items():
            ratio = (spreads(model, make(4, model.size)).square().mean(0).sqrt() / mean).log2()
            print(f"    {probe:18s} {ratio.mean():+.3f}  ±{ratio.std():.3f}  late {ratio[len(ratio) // 2:].mean():+.3f}  {ratio.min():+.2f} {ratio.max():+.2f}", flush=True)


if __name__ == "__main__":
    main()
