"""Does what the README and the tutorial say, as a newcomer does: everything, in order, in a fresh environment.

``make docs-smoke`` runs it. The folder to work in is what an unpacked source archive holds; nothing of the checkout or
of its environment is in reach. Stops at the first thing that does not work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from doc_pages import ROOT, Action, actions

PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
NOT_RUN = {
    "make test": "continuous integration runs it by itself",
    "whorl run": "names a command; the tutorial runs it on a file",
    "whorl physical": "names a group of commands",
    "whorl gate": "names a command, whose own tests run it",
    "whorl gate python:shop:classifier --data photos/ --fail-above 60 --out runs/gate": "a network of the reader's own",
}
# What would take hours runs with these words added. A training wants images of all classes, and ours show a few.
SHORTENED = {
    "whorl paper table1": "--limit 1 --quick",
    "whorl harden mobilenet_v2 --data photos/ --recipe ens-at": "--partial --steps 1 --batch 2 --held-out 2",
}
SERVERS = ("whorl ui",)
# The gate may open or close; either is an answer.
GATE = "--fail-above"
# The README speaks of photos/ as the reader's own; the tutorial makes it.
BROUGHT = """
import whorl
from whorl.data import save_image

for image, label, name in zip(*whorl.load_samples(4)):
    save_image(f"photos/{label}/{name}.png", image)
"""
LONGEST = 900
"""Seconds that a command may take."""


class Outcome(NamedTuple):
    """How a command ended: whether well, and all that it printed."""

    well: bool
    printed: str


class Reader:
    """Somebody in a folder, with an environment of their own."""

    def __init__(self, home: Path, programs: Path, folder: Path) -> None:
        self.home, self.programs, self.folder = home, programs, folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        # make tells those it starts of itself, and another make must not hear of it.
        kept = {name: value for name, value in kept.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CI")}
        self.environment = kept | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(folder / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "COLUMNS": "120",
        }

    def type(self, command: str) -> Outcome:
        """Run a command in bash."""
        if command in SERVERS:
            return self.visit(command)
        own = {"HOME": str(self.home)} if "--install-completion" in command else {}
        # With a line after it, bash stays the command's parent, which is how a program learns what shell it is in.
        line = f"{command} {SHORTENED.get(command, '')}\nexit $?"
        with subprocess.Popen(
            ["bash", "-c", line],  # noqa: S607 - whichever bash the reader has
            cwd=self.folder,
            env=self.environment | own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            with limited(process):
                printed = process.stdout.read()
                code = process.wait()
        ends = (0, 1) if GATE in command else (0,)
        return Outcome(code in ends and "Traceback" not in printed, printed)

    def visit(self, command: str) -> Outcome:
        """Start a server, ask for its page, interrupt it."""
        with subprocess.Popen(
            command.split(),
            executable=self.programs / command.split()[0],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stderr is not None
            with limited(process):
                printed, address = "", None
                for line in process.stderr:  # it may say that it starts before it says where it is
                    printed += line
                    if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                        break
                answered = False
                if address:
                    with urllib.request.urlopen(address[0], timeout=60) as page:  # noqa: S310 - this machine's own
                        answered = page.status == 200
                process.send_signal(signal.SIGINT)
                printed += process.stderr.read()
                return Outcome(answered and process.wait() == 0, printed)

    def save(self, name: str, text: str) -> Outcome:
        """Write a file."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return Outcome(True, "")

    @cached_property
    def prompt(self) -> Prompt:
        """Python, started when it is first needed: what is installed by then is there."""
        return Prompt(self)

    def do(self, action: Action) -> Outcome:
        """Do one thing that a page says."""
        if action.kind == "file":
            return self.save(action.name, action.text)
        if action.kind == "python":
            return self.prompt.run(action.page.name, action.line, action.text)
        return self.type(action.text)


class Prompt:
    """One session of Python for all blocks of a page."""

    LOOP = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
scope = {"__name__": "__main__"}
for line in sys.stdin:
    page, number, text = json.loads(line)
    try:
        exec(compile("\\n" * (number - 1) + text, page, "exec", dont_inherit=True), scope)
    except BaseException:
        traceback.print_exc()
        break
    sys.stdout.flush()
    answers.write("done\\n")
    answers.flush()
"""

    def __init__(self, reader: Reader) -> None:
        self.printed = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the session
        self.process = subprocess.Popen(
            [reader.programs / "python", "-c", self.LOOP],
            cwd=reader.folder,
            env=reader.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.printed,
            text=True,
            start_new_session=True,
        )

    def run(self, page: str, line: int, text: str) -> Outcome:
        """Run a block; names that earlier ones made are there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with limited(self.process):
            self.process.stdin.write(json.dumps([page, line, text]) + "\n")
            self.process.stdin.flush()
            well = self.process.stdout.readline() == "done\n"
        self.printed.seek(0)
        return Outcome(well, self.printed.read())

    def close(self) -> None:
        """End the session."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.printed.close()


@contextmanager
def limited(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill what takes too long, with all that it started; whoever waits for its words then gets no more."""
    clock = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def unpacked(place: Path) -> Path:
    """The source archive, built and unpacked below a folder."""
    built = place / "built"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    [archive] = built.iterdir()
    with tarfile.open(archive) as file:
        file.extractall(place, filter="data")
    [folder] = [path for path in place.iterdir() if path.is_dir() and path != built]
    return folder


def installs(action: Action) -> bool:
    """Whether a reader does it first of all, wherever on the page it stands."""
    return action.kind == "command" and action.text.startswith("pip ")


def todo(page: Path) -> list[Action]:
    """A page's actions, each command once, installing first."""
    seen: set[str] = set()
    found = []
    for action in sorted(actions(page), key=lambda action: not installs(action)):
        if action.kind != "command" or action.text not in seen:
            found.append(action)
            seen.add(action.text)
    return found


def stale() -> list[str]:
    """What is said of commands that no page has any longer."""
    there = {action.text for page in PAGES for action in todo(page)}
    return [command for command in (*NOT_RUN, *SHORTENED, *SERVERS) if command not in there]


def tell(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def follow(page: Path, reader: Reader, made: set[str]) -> bool:
    """Do everything that a page says, with a line for each thing.

    Args:
        page: README or tutorial.
        reader: who does it.
        made: what make was told on earlier pages, which is not done again; grows.

    Returns:
        Whether all went well.
    """
    tell(f"\n{page.relative_to(ROOT)}")
    brought = page.name != "README.md"
    for action in todo(page):
        reason = NOT_RUN.get(action.text) or ("was run above" if action.text in made else None)
        if reason:
            tell(f"{named(action)}        –  not run: {reason}")
            continue
        if not brought and not installs(action):
            brought = reader.prompt.run("photos", 1, BROUGHT).well
        start = time.perf_counter()
        outcome = reader.do(action)
        words = "ok" if outcome.well else "FAILS"
        words += f", with {SHORTENED[action.text]}" if action.text in SHORTENED else ""
        tell(f"{named(action)} {time.perf_counter() - start:6.1f} s  {words}")
        if not outcome.well:
            tell(f"\n{outcome.printed}\n{page.relative_to(ROOT)}, line {action.line}, does not work as written.")
            return False
        made |= {action.text} if action.text.startswith("make ") else set()
    reader.prompt.close()
    return True


def named(action: Action) -> str:
    """The beginning of an action's line in the table."""
    first = action.text.strip().splitlines()[0]
    shown = {"command": action.text, "file": f"save {action.name}", "python": f"Python: {first}"}[action.kind]
    return f"  {action.line:4}  {shown if len(shown) <= 96 else shown[:95] + '…':96}"


def main() -> int:
    """Follow all pages; 0 if everything works."""
    if gone := stale():
        tell(f"No page has these commands any longer; take them out of {Path(__file__).name}: {', '.join(gone)}")
        return 1
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="whorl-docs-") as place:
        home = Path(place)
        venv.create(home / "environment", with_pip=True, symlinks=True)
        programs = home / "environment" / "bin"
        made: set[str] = set()
        readme, tutorial = (unpacked(home / page.stem) for page in PAGES)
        if not follow(PAGES[0], Reader(home, programs, readme), made):
            return 1
        # Who ran the demo once goes on from there.
        shutil.copytree(readme / "runs" / "demo", tutorial / "runs" / "demo")
        if not follow(PAGES[1], Reader(home, programs, tutorial), made):
            return 1
    tell(f"\nEverything works as written. {(time.perf_counter() - start) / 60:.1f} minutes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
