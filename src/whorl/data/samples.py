"""Twenty labelled ImageNet photographs, so that every example and test runs on real images without a data set."""

from __future__ import annotations

from whorl.artifacts import Artifact, fetch
from whorl.data.images import Images, collect
from whorl.data.layouts import Entry
from whorl.data.pictures import Size, checked_size
from whorl.errors import WhorlError

# The number after the last underscore is the 0-based class.
_SHA256 = {
    "imagenet_00_243": "28b7b933c8028c6e20bf74a86a709eda42ce99f14c8742cb657cb386f08a4c9d",
    "imagenet_01_559": "5f03b0c74dff01b5b4195d0beabcae2a625a406e6917957ab9c455b5b7dea6d6",
    "imagenet_02_438": "ccef0734c1a65549c6cb5adb0f5d9b1c0b2e2104aba50a9e5f9202dc6d4532ed",
    "imagenet_03_990": "c7f0b2f1e9ee39d8f900759e8983afa2e4a2d7de090060e8bb947f6e90cace5f",
    "imagenet_04_949": "a7f62f3c1d214de4718c7253871ab38209283249e131faf65b8f2b7fdc970669",
    "imagenet_05_853": "8a449436c61da867528b1f4efaf8ae832ab9c9201705eae0d3af1353fbdac131",
    "imagenet_06_609": "fb061102a4e58b3ed942bb2a4f9542e1e1acdc8f225ef95498e93889290e192f",
    "imagenet_07_609": "2c297ad1e5c4804a647e9b34bc02ee2fc348b05a4d49050d170fb61c948efa5c",
    "imagenet_08_915": "c6a3411a3987799f0de45adc142f00ca412c3e14073c635e2adfae1f3913180c",
    "imagenet_09_455": "ace3716b60ac5843269b270e17020e4f8138440cd30ef3487f7d6e54da9745a4",
    "imagenet_10_541": "f325c71d9f4290ee45e99bd7ad42f4bffe513b1450ad21e7bd61c7cb137395d9",
    "imagenet_11_630": "892dff58fc528fe63d2df0c783aa3eca2342637798578ce01763fbc0553eda01",
    "imagenet_12_741": "6c256e17545b25bbf2e06cf6513ff48d049583569515ac4d4c3a52aea804a529",
    "imagenet_13_471": "52ed0e738b90d27afcabc3e92c81ae637f160c2d9f75b93a65211005ab5dcd81",
    "imagenet_14_129": "ad9371d813bf24b0365ee2f78f28c08718ee7c5975f060caa16c3f264e828139",
    "imagenet_15_99": "4b588649cd835d4c65521727ebee03d9621baff1f54d3e8a53a26b53d983ec2e",
    "imagenet_16_251": "ce3440a3b7beb6ca3009817504c44d39fa789e7c2f70a2eef7e2f9cc9a87b129",
    "imagenet_17_22": "b432341845620e9cfd67d848c4783c32dd6eaddad45513866b17180d2b09fcf5",
    "imagenet_18_317": "b9412f92f0b1c3faede45b55a44940977daa744f2040118d0538cf597fca785d",
    "imagenet_19_305": "e1f58f00e2e47ce930d7ecab0e46a78316054f68c10d0742e87c1cc092324556",
}
_MEMBERS = {f"foolbox/data/{name}.jpg": digest for name, digest in _SHA256.items()}
SAMPLES = Artifact(package="foolbox", version="3.3.4", files=_MEMBERS)


def load_samples(n: int | None = None, *, size: Size = 224) -> Images:
    """Load the bundled photographs; the first call fetches them (1.5 MB), later ones need no network.

    Args:
        n: take the first n of the 20; None takes all.
        size: side, or (height, width), to resize whole images to. Most are 512 × 512, one is 683 × 1024.

    Returns:
        Images, to be unpacked: ``x`` (n, 3, H, W) float32 in [0, 1], ``y`` (n,) int64 ImageNet classes, ``ids``.

    Raises:
        WhorlError: ``n`` is not from 1 to 20, or the photographs cannot be fetched.

    >>> x, y, ids = load_samples(2)
    >>> x.shape, y, ids
    (torch.Size([2, 3, 224, 224]), tensor([243, 559]), ['imagenet_00_243', 'imagenet_01_559'])
    """
    count = len(_SHA256)
    if n is not None and not (isinstance(n, int) and 1 <= n <= count):
        raise WhorlError(f"there are {count} samples; expected n from 1 to {count}, got {n!r}.")
    return collect(list_samples()[:n], size=checked_size(size))


def list_samples() -> list[Entry]:
    """List the bundled photographs, as ``list_images`` lists a folder; the first call fetches them."""
    paths = fetch(SAMPLES).values()
    return [Entry(path=path, label=int(path.stem.rpartition("_")[2]), id=path.stem) for path in paths]
