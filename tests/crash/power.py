"""A model of what a power cut leaves: a disk that forgets what was not synced, and reorders the rest.

`RecordingDisk` looks at the real directory tree before each operation and writes down what has changed: names
that came and went, contents of files. `sync` makes what it names durable, in the model only. `materialise`
builds, in a new directory, one of the states in which a power cut may leave the disk.

What is modelled, no stronger than ext4, XFS or Btrfs:

- Syncing a file makes its content durable, not its name. Syncing a directory makes its names durable, not
  their contents. Nothing else is ordered.
- A name that was created, linked, renamed or removed since its directory was last synced may be there or not,
  whatever became of any other name. Only a rename is never half done the wrong way round: the old name goes
  no earlier than the new one comes.
- A file that was never synced, or the part of it that was written since, may be whole, cut off anywhere,
  empty, or there in length with blocks of zeros in it.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from astro_async._store.atomic import Disk

BLOCK = 4096


@dataclass
class Name:
    """What one name of a directory has stood for since it was last durable.

    Attributes:
        durable: How many of `values` are durable; the last of those is the durable one.
        values: Inode numbers in the order of time, None where there was no such name.
        partners: For a value that is the end of a rename, where the file went: directory, name, index there.
    """

    durable: int = 1
    values: list[int | None] = field(default_factory=lambda: [None])
    partners: dict[int, tuple[int, str, int]] = field(default_factory=dict)


@dataclass
class Content:
    """What one file has held since it was last durable; `durable` is None if it never was synced."""

    mode: int
    durable: bytes | None = None
    latest: bytes = b""
    stamp: tuple[int, int] = (-1, -1)


class Model:
    """The disk as it is, and as much of it as is durable."""

    def __init__(self, root: Path, refuge: Path) -> None:
        """Take the tree as it is for durable.

        Args:
            root: The pipeline directory.
            refuge: A folder on the same file system, where each file gets one more name so that no inode
                number is used twice.
        """
        self.root = root
        self.refuge = refuge
        self.root_inode = os.stat(root).st_ino
        self.names: dict[int, dict[str, Name]] = {}
        # So that no number of a directory is used twice either.
        self._open_directories: list[int] = []
        self.contents: dict[int, Content] = {}
        self.seen: dict[tuple[int, str], int] = {}
        self.observe()
        for directory in self.names:
            self._settle_directory(directory)
        for content in self.contents.values():
            content.durable = content.latest

    # -- writing down ----------------------------------------------------------------------------

    def observe(self) -> None:
        """Note what has changed in the tree."""
        now: dict[tuple[int, str], int] = {}
        pending = [(self.root_inode, str(self.root))]
        while pending:
            directory, path = pending.pop()
            try:
                self._open(directory, path)
                entries = list(os.scandir(path))
            except FileNotFoundError:
                continue
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        pending.append((status.st_ino, entry.path))
                    else:
                        self._read(status, entry.path)
                except FileNotFoundError:
                    continue
                now[directory, entry.name] = status.st_ino
        self._note_names(now)

    def _open(self, inode: int, path: str) -> None:
        if inode not in self.names:
            self.names[inode] = {}
            self._open_directories.append(os.open(path, os.O_RDONLY))

    def close(self) -> None:
        """Let go of the directories."""
        while self._open_directories:
            os.close(self._open_directories.pop())

    def _read(self, status: os.stat_result, path: str) -> None:
        content = self.contents.get(status.st_ino)
        if content is None:
            content = self.contents[status.st_ino] = Content(status.st_mode)
            os.link(path, self.refuge / str(status.st_ino))
        content.mode = status.st_mode
        stamp = (status.st_size, status.st_mtime_ns)
        if content.stamp != stamp:
            content.stamp = stamp
            content.latest = Path(path).read_bytes()

    def _note_names(self, now: dict[tuple[int, str], int]) -> None:
        gone = [place for place in self.seen if now.get(place) != self.seen[place]]
        came = [place for place in now if self.seen.get(place) != now[place]]
        for place in came:
            self._append(place, now[place])
        arrivals = {now[place]: place for place in came}
        for place in gone:
            if place in now:
                continue
            index = self._append(place, None)
            to = arrivals.get(self.seen[place])
            if to is not None:
                directory, name = to
                arrived = len(self.names[directory][name].values) - 1
                self.names[place[0]][place[1]].partners[index] = (directory, name, arrived)
        self.seen = now

    def _append(self, place: tuple[int, str], inode: int | None) -> int:
        directory, name = place
        chain = self.names[directory].setdefault(name, Name())
        chain.values.append(inode)
        return len(chain.values) - 1

    def sync(self, path: str) -> None:
        """Make a file's content or a directory's names durable, as they are now."""
        inode = os.stat(path).st_ino
        if inode in self.names:
            self._settle_directory(inode)
        else:
            content = self.contents[inode]
            content.durable = content.latest

    def _settle_directory(self, directory: int) -> None:
        for chain in self.names[directory].values():
            for index in range(chain.durable, len(chain.values)):
                if index in chain.partners:
                    # A rename is one transaction: that the old name is gone says that the new one is there.
                    other, name, arrived = chain.partners[index]
                    partner = self.names[other][name]
                    partner.durable = max(partner.durable, arrived + 1)
            chain.durable = len(chain.values)

    # -- what a power cut leaves -----------------------------------------------------------------

    def materialise(self, target: Path, choose: Chooser) -> None:
        """Build one of the states that a power cut may leave, in a directory that does not exist yet."""
        chosen = self._choose_names(choose)
        made: dict[int, str] = {}
        pending = [(self.root_inode, str(target))]
        while pending:
            directory, path = pending.pop()
            os.mkdir(path)
            for name, inode in sorted(chosen.get(directory, {}).items()):
                place = f"{path}/{name}"
                if inode in self.names:
                    pending.append((inode, place))
                elif inode in made:
                    os.link(made[inode], place)
                else:
                    made[inode] = place
                    Path(place).write_bytes(choose.content(self.contents[inode]))
                    os.chmod(place, stat.S_IMODE(self.contents[inode].mode))

    def _choose_names(self, choose: Chooser) -> dict[int, dict[str, int]]:
        kept: dict[tuple[int, str], int] = {}
        chains = {(d, n): chain for d, names in self.names.items() for n, chain in names.items()}
        for place, chain in chains.items():
            kept[place] = choose.index(chain.durable, len(chain.values))
        # No file is lost by a rename: where the new name has not come, the old one has not gone. Within one
        # directory it is one change, so neither does the new one come before the old one goes.
        is_settled = False
        while not is_settled:
            is_settled = True
            for place, chain in chains.items():
                for index, (directory, name, arrived) in chain.partners.items():
                    if index < chain.durable:
                        continue
                    has_gone, has_come = kept[place] >= index, kept[directory, name] >= arrived
                    if has_gone and not has_come:
                        kept[place] = index - 1
                        is_settled = False
                    elif has_come and not has_gone and directory == place[0]:
                        kept[directory, name] = arrived - 1
                        is_settled = False
        found: dict[int, dict[str, int]] = {}
        for place, chain in chains.items():
            inode = chain.values[kept[place]]
            if inode is not None:
                found.setdefault(place[0], {})[place[1]] = inode
        return found


class Chooser:
    """Chooses one of the states, by a seed.

    At random, name by name and file by file; or one of the corners: nothing but what is durable, or all names
    with no contents, blocks of zeros, or everything.
    """

    CORNERS = ("durable", "names", "zeros", "whole")
    KINDS = (*CORNERS, *["random"] * len(CORNERS))

    def __init__(self, seed: int, kind: str) -> None:
        self._random = random.Random(seed)
        self.kind = kind
        self._share = self._random.choice([0.1, 0.5, 0.9])

    def index(self, durable: int, total: int) -> int:
        """Choose which of the values of a name is found, of those from the durable one on."""
        match self.kind:
            case "durable":
                return durable - 1
            case "random":
                if self._random.random() < self._share:
                    return total - 1
                return self._random.randrange(durable - 1, total)
            case _:
                return total - 1

    def content(self, content: Content) -> bytes:
        """Choose what is found in a file."""
        durable, latest = content.durable or b"", content.latest
        if latest == durable:
            return durable
        kind = self.kind
        if kind == "random":
            kind = self._random.choice([*self.CORNERS, "cut", "holes"])
        if kind in ("durable", "names"):
            return durable
        if kind == "whole":
            return latest
        if not latest.startswith(durable):
            return self._random.choice([durable, latest])
        if kind == "cut":
            return latest[: self._random.randrange(len(durable), len(latest) + 1)]
        return self._with_zeros(durable, latest, is_all=kind == "zeros")

    def _with_zeros(self, durable: bytes, latest: bytes, *, is_all: bool) -> bytes:
        found = bytearray(latest)
        starts = range(len(durable) // BLOCK * BLOCK, len(latest), BLOCK)
        chosen = set(starts) if is_all else {self._random.choice(starts)}
        for start in starts:
            if start in chosen:
                first = max(start, len(durable))
                last = min(start + BLOCK, len(latest))
                found[first:last] = bytes(last - first)
        return bytes(found)


class RecordingDisk(Disk):
    """Keeps a model of a directory tree, and tells each moment at which something is about to be synced."""

    def __init__(self, model: Model, at_sync: Callable[[str], None]) -> None:
        super().__init__(fsync=False)
        self._model = model
        self._at_sync = at_sync
        self._recording = threading.RLock()

    def before(self, operation: str, path: str) -> None:
        with self._recording:
            self._model.observe()

    def sync(self, path: str) -> None:
        with self._recording:
            super().sync(path)
            self._at_sync(f"before sync {path}")
            self._model.sync(path)
            self._at_sync(f"after sync {path}")
