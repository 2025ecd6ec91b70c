"""The seam: every change to the disk passes one of these methods.

A test subclasses `Disk` and overrides `before`, to make the k-th operation fail or to kill the process
there. Errors of the operating system come out as `StorageError`, with the path and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable
from types import TracebackType
from typing import Final

from astro_async.exceptions import StorageError, SymlinkError

__all__ = ["PRIVATE_MODE", "PUBLISHED_MODE", "Disk", "refuse_symlinks", "storage_errors"]

# linux/fs.h; file systems without shared extents answer with an error and the file is copied.
_FICLONE: Final = 0x40049409

# The inode is out of links, the target lies on another file system, or links are not supported.
_NO_LINK: Final = frozenset({errno.EMLINK, errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.ENOSYS})

# A symbolic link where a file of the run should be could lead out of it.
_NO_FOLLOW: Final = os.O_NOFOLLOW | os.O_CLOEXEC

PUBLISHED_MODE: Final = 0o444

PRIVATE_MODE: Final = 0o600


class storage_errors:  # noqa: N801 - read as what it does: `with storage_errors("write", path):`
    """Turns an `OSError` inside the block into a `StorageError` that names the operation and the path.

    Raises:
        StorageError: The operating system refused.
    """

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Translate the error, if it is one of the operating system."""
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise StorageError(
                f"cannot {self._operation} {self._path}: {reason}. Nothing recorded is lost: "
                "put this right and give the command again"
            ) from error


def refuse_symlinks(directory: str, name: str) -> None:
    """Refuse a name below a directory that is a symlink or lies behind one: it could lead anywhere.

    Raises:
        SymlinkError: It is, or does.
    """
    path = directory
    for part in name.split("/"):
        path = f"{path}/{part}"
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(mode):
            raise SymlinkError(
                f"{path} is a symbolic link, which could lead out of the run: remove it and run again"
            )


class Disk:
    """Changes to the disk, one method for each kind."""

    def __init__(self, *, fsync: bool = True) -> None:
        """Make the seam of one invocation.

        Args:
            fsync: Whether `sync` waits for the device; without, nothing is promised after a power cut.
        """
        self._fsync = fsync
        self._directories: set[str] = set()
        # Where a file that is out of links has a copy which is not.
        self._fresh_copies: dict[str, str] = {}

    def before(self, operation: str, path: str) -> None:
        """Do nothing; called before each change, in the thread that makes it.

        An `OSError` that it raises is met as one of the change itself would be.
        """

    def announce(self, operation: str, path: str) -> None:
        """Pass the seam for a change that another library makes: Polars, SQLite, the lock."""
        with storage_errors(operation, path):
            self.before(operation, path)

    def make_directory(self, path: str, *, is_kept: bool = True) -> None:
        """Create a directory and its parents; at no cost if this object made it before.

        Args:
            path: The directory.
            is_kept: Whether it is there to stay, and worth being remembered.
        """
        if path in self._directories:
            return
        with storage_errors("create directory", path):
            self.before("create directory", path)
            os.makedirs(path, exist_ok=True)
        if is_kept:
            self._directories.add(path)

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it exists and is empty."""
        self._directories.discard(path)
        with contextlib.suppress(OSError):
            self.before("remove directory", path)
            os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, if it exists."""
        self._directories.discard(path)
        with storage_errors("remove", path), contextlib.suppress(FileNotFoundError):
            self.before("remove", path)
            shutil.rmtree(path)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with storage_errors("remove", path), contextlib.suppress(FileNotFoundError):
            self.before("remove", path)
            os.unlink(path)

    def sync_removals(self, directories: Iterable[str]) -> None:
        """Remove those directories that are empty; no power cut brings back what was removed from any."""
        remaining = set()
        for directory in sorted(directories):
            self.remove_directory(directory)
            nearest = directory
            while not os.path.isdir(nearest):
                nearest = os.path.dirname(nearest)
            remaining.add(nearest)
        for directory in sorted(remaining):
            self.sync(directory)

    def publish(self, staged: str, path: str, *, mode: int = PUBLISHED_MODE) -> None:
        """Give a finished file its final name and mode, never over an existing one.

        Only the holder of the run's lock publishes, so nothing can come between look and rename.

        Raises:
            StorageError: The name exists, or the disk refuses.
        """
        with storage_errors("publish", path):
            self.before("publish", path)
            os.chmod(staged, mode)
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, "the file exists already", path)
            os.rename(staged, path)

    def replace(self, temporary: str, path: str, *, over_existing: bool) -> None:
        """Give a finished file outside of the run its name, durably; whoever looks sees all of it or nothing.

        Raises:
            StorageError: The name exists and is not to be replaced, or the disk refuses.
        """
        self.sync(temporary)
        with storage_errors("write", path):
            self.before("rename", path)
            if not over_existing and os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, "the file exists already", path)
            os.replace(temporary, path)
        self.sync(os.path.dirname(os.path.abspath(path)))

    def link_anew(self, path: str, name: str) -> bool:
        """Make `name` a hard link to the immutable file `path`, in one operation; False if that cannot be.

        Then there is such a name, or there can be no such link: `link` makes it.
        """
        with storage_errors("link", name):
            try:
                self.before("link", name)
                os.link(self._fresh_copies.get(path, path), name)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in (*_NO_LINK, errno.ENOENT):
                    return False
                raise
        self._forget_copy(name)
        return True

    def link(self, path: str, name: str, *, temporary: str | None = None) -> None:
        """Make `name` a link to the immutable file `path`, in place of what had that name.

        A hard link; where there can be none a reflink, else a copy. The name is replaced at once.

        Args:
            path: The file.
            name: The link to be.
            temporary: A free name on the same file system; default: one beside `name`.
        """
        temporary = f"{name}.tmp" if temporary is None else temporary
        with storage_errors("link", name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            self._link_or_copy(path, temporary, name)
            self.before("rename", name)
            os.replace(temporary, name)
            # Two names of one inode: POSIX renames nothing and leaves the first name behind.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        self._forget_copy(name)
        if self._fresh_copies.get(path) == temporary:
            self._fresh_copies[path] = name

    def _forget_copy(self, name: str) -> None:
        # What the name stood for before, it stands for no longer.
        for source, copy in list(self._fresh_copies.items()):
            if copy == name:
                del self._fresh_copies[source]

    def _link_or_copy(self, path: str, temporary: str, name: str) -> None:
        source = self._fresh_copies.get(path, path)
        try:
            self.before("link", name)
            os.link(source, temporary)
        except OSError as error:
            if error.errno == errno.ENOENT and source != path:
                self._fresh_copies.pop(path, None)
                self._link_or_copy(path, temporary, name)
                return
            if error.errno not in _NO_LINK:
                raise
            _copy(source, temporary)
            if error.errno == errno.EMLINK:
                # Links to come go to the copy, so that one copy serves thousands of names.
                self._fresh_copies[path] = temporary

    def write_file(self, path: str, content: bytes, *, is_durable: bool = True) -> None:
        """Replace a file by one with this content: whoever looks sees the old one or the new.

        Args:
            path: The file.
            content: All of it.
            is_durable: Whether that is so after a power cut too. Blocks on the device.
        """
        temporary = f"{path}.tmp"
        with storage_errors("write", path):
            self.before("write", path)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_FOLLOW, 0o644)
            try:
                try:
                    _write_all(descriptor, content)
                finally:
                    os.close(descriptor)
                if is_durable:
                    self.sync(temporary)
                self.before("rename", path)
                os.replace(temporary, path)
            except (OSError, StorageError):
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        if is_durable:
            self.sync(os.path.dirname(path))

    def open_append(self, path: str) -> int:
        """Open a file for appending, creating it if need be, and return its descriptor."""
        with storage_errors("open", path):
            self.before("open", path)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NO_FOLLOW, 0o644)

    def cut_back(self, descriptor: int, path: str, size_bytes: int) -> None:
        """Remove what a failed append left behind the good end of an open file."""
        with storage_errors("cut back", path):
            self.before("cut back", path)
            os.ftruncate(descriptor, size_bytes)

    def append(self, descriptor: int, path: str, content: bytes) -> None:
        """Append to an open file; the content survives the death of the process at once."""
        with storage_errors("append to", path):
            self.before("append to", path)
            _write_all(descriptor, content)

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file off, durably."""
        with storage_errors("truncate", path):
            self.before("truncate", path)
            descriptor = os.open(path, os.O_WRONLY | _NO_FOLLOW)
            try:
                os.ftruncate(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        self.sync(path)

    def rename_directory(self, path: str, name: str) -> None:
        """Give a directory its final name, durably; the name must not exist."""
        with storage_errors("rename to", name):
            self.before("rename", name)
            os.rename(path, name)
        self.sync(os.path.dirname(name))

    def set_aside(self, path: str) -> None:
        """Give a file that cannot be used the name `….damaged`, so that another can take its place."""
        with storage_errors("rename", path):
            self.before("rename", path)
            os.replace(path, f"{path}.damaged")

    def make_readonly(self, path: str, mode: int = PUBLISHED_MODE) -> None:
        """Let nobody write to a file any more, or give it another mode."""
        with storage_errors("chmod", path):
            self.before("chmod", path)
            os.chmod(path, mode)

    def sync(self, path: str) -> None:
        """Make a file's content, or a directory's entries, survive a power cut. Blocks on the device."""
        with storage_errors("sync", path):
            self.before("sync", path)
            if not self._fsync:
                return
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _copy(path: str, name: str) -> None:
    with open(path, "rb") as source, open(name, "xb") as target:
        try:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        except OSError:
            shutil.copyfileobj(source, target, 1 << 20)
    os.chmod(name, PUBLISHED_MODE)
