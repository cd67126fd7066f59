"""Who is looking at the page, and what is held for them: in memory, until they leave."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from whorl.ui.crafting import Crafted
from whorl.ui.looking import SuccessMap
from whorl.ui.picture import Picture

_MOST = 16


@dataclass
class Visit:
    """One open page. It changes as its owner chooses, so unlike most records it is not frozen."""

    picture: Picture | None = None
    crafted: Crafted | None = None
    map: SuccessMap | None = None
    stopped: bool = False
    """Whether its owner wants nothing at all; a new job changes that."""
    _order: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def order(self) -> int:
        """Take a number for a new job. Jobs with an older number are no longer wanted, and stop by themselves."""
        with self._lock:
            self._order += 1
            self.stopped = False
            return self._order

    def stop(self) -> None:
        """Want no job at all."""
        with self._lock:
            self._order += 1
            self.stopped = True

    def wants(self, order: int) -> bool:
        """Whether the job with this number is still wanted."""
        return self._order == order


class Visits:
    """Open pages by the key that the browser was given; the longest unused is forgotten when there are too many.

    >>> visits = Visits(most=1)
    >>> first = visits.of("a")
    >>> visits.of("a") is first, visits.of("b") is first, visits.of("a") is first
    (True, False, False)
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._lock = most, threading.Lock()
        self._open: OrderedDict[str, Visit] = OrderedDict()

    def of(self, key: str) -> Visit:
        """The visit of one page, new if need be."""
        with self._lock:
            visit = self._open.setdefault(key, Visit())
            self._open.move_to_end(key)
            while len(self._open) > self._most:
                _, forgotten = self._open.popitem(last=False)
                forgotten.stop()
            return visit

    def leave(self, key: str) -> None:
        """Forget a page that was closed, and stop what it still waits for."""
        with self._lock:
            visit = self._open.pop(key, None)
        if visit is not None:
            visit.stop()

    def __len__(self) -> int:
        return len(self._open)
