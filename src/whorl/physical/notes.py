"""What networks said of photographs, noted page by page: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import whorl
from whorl.errors import WhorlError
from whorl.evaluation import Pose
from whorl.files import atomic_write, sha256_of
from whorl.physical.captures import Capture, Photographed
from whorl.physical.extraction import Seen
from whorl.physical.sheet import Sheet
from whorl.runs.networks import Target


class Notes:
    """A file with a line for each page.

    Args:
        path: the file; None keeps no notes. Notes about something else are thrown away.
        identity: all that the answers depend on.
        sheet: whose pages they are.

    Raises:
        WhorlError: the file cannot be written.
    """

    def __init__(self, path: Path | None, identity: str, sheet: Sheet) -> None:
        self.path, self.sheet = path, sheet
        self.pages: dict[int, dict[str, Photographed]] = {}
        if path is None:
            return
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if lines[:1] == [identity]:
            self.pages = {page: own for page, own in map(self._read, lines[1:]) if own}
        lines = [identity, *(self._line(page, own) for page, own in self.pages.items())]
        with _writing(path), atomic_write(path) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())

    def add(self, page: int, own: dict[str, Photographed]) -> None:
        """Note what came of one page, by the camera's setting."""
        self.pages[page] = own
        if self.path is not None:
            with _writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(self._line(page, own) + "\n")

    def _line(self, page: int, own: dict[str, Photographed]) -> str:
        return json.dumps([page, {setting: self._plain(shot) for setting, shot in own.items()}])

    def _plain(self, shot: Photographed) -> dict[str, Any]:
        captures = [
            [
                self.sheet.number(capture.item),
                [capture.seen.pose.angle, capture.seen.pose.scale, *capture.seen.pose.shift],
                [capture.seen.tilt, capture.seen.density, capture.misfit],
                [[*asked, answer] for asked, answer in capture.answers.items()],
            ]
            for capture in shot.captures
        ]
        return {"photo": shot.photo, "partly": shot.partly, "reason": shot.reason, "captures": captures}

    def _read(self, line: str) -> tuple[int, dict[str, Photographed]]:
        try:
            page, own = json.loads(line)
        except ValueError:  # the last line of a process that was killed as it wrote
            return -1, {}
        return page, {setting: self._photographed(plain) for setting, plain in own.items()}

    def _photographed(self, plain: dict[str, Any]) -> Photographed:
        photo, captures = plain["photo"], []
        for number, (angle, scale, right, down), (tilt, density, misfit), answers in plain["captures"]:
            pose = Pose(angle=angle, scale=scale, shift=(right, down))
            captures.append(
                Capture(
                    photo=photo,
                    sheet=self.sheet.name,
                    item=self.sheet.by_number[number],
                    seen=Seen(pose=pose, tilt=tilt, density=density),
                    misfit=misfit,
                    answers={(view, target): answer for view, target, answer in answers},
                )
            )
        return Photographed(photo=photo, captures=captures, partly=plain["partly"], reason=plain["reason"])


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WhorlError(f"cannot write {path} ({error}). Choose a folder that is writable and has space.") from error


def identity_of(sheet: Sheet, targets: Sequence[Target], **settings: object) -> str:
    """Write down in one line all that answers depend on: the images on paper, the networks, and settings."""
    prints = hashlib.sha256(repr(sheet.layout).encode())
    for item in sheet.prints:
        prints.update(f"{item.id} {item.label} {item.version} {item.size} {sheet.number(item)} ".encode())
        prints.update(sha256_of(item.file).encode())
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        code.update(file.read_bytes())  # another simulator, other photographs
    told = {
        "whorl": whorl.__version__,
        "code": code.hexdigest(),
        "prints": prints.hexdigest(),
        "targets": {target.name: getattr(target.net, "weights_sha256", None) for target in targets},
        **{name: repr(value) for name, value in settings.items()},
    }
    return json.dumps(told, sort_keys=True)
