"""`--notify-command` and `--notify-url`: telling others how a run ended.

Happens after the verdict and never changes it. What cannot be delivered is kept, and delivered by the next
`astro run` with the same option, whichever run that is about. The command and the address themselves are not
kept: they may hold secrets.
"""

from __future__ import annotations

import http.client
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import typer

from astro_async._core.notice import derive_notice
from astro_async._core.records import RunRecord
from astro_async._store.atomic import Disk
from astro_async._store.layout import run_directory
from astro_async._store.untold import forget_notice, note_notice, scan_untold
from astro_async.cli.wording import safe
from astro_async.exceptions import StorageError
from astro_async.reading import exit_code_of

__all__ = ["Teller", "make_command_teller", "make_url_teller", "tell_others"]

_COMMAND_TIMEOUT_S: Final = 60
_URL_TIMEOUT_S: Final = 10


class NotToldError(Exception):
    """A notice could not be delivered; the message says why."""


class Teller:
    """One way of telling: `channel` names it in the run's file, `send` delivers the JSON of a notice."""

    def __init__(self, channel: str, send: Callable[[bytes], None]) -> None:
        self.channel = channel
        self.send = send


def make_command_teller(command: str) -> Teller:
    """Return a teller that runs a command with the notice on its stdin.

    Raises:
        typer.BadParameter: It is no command.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"{command!r}: {error}", param_hint="--notify-command") from None
    if not words:
        raise typer.BadParameter("it is empty", param_hint="--notify-command")

    def send(document: bytes) -> None:
        try:
            done = subprocess.run(
                words,
                input=document,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotToldError(f"{words[0]} took more than {_COMMAND_TIMEOUT_S} seconds") from None
        except (OSError, ValueError) as error:
            raise NotToldError(f"{words[0]} cannot be run: {error}") from None
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split())[-200:]
            raise NotToldError(f"{words[0]} ended with {done.returncode}" + (f": {said}" if said else ""))

    return Teller("command", send)


def make_url_teller(url: str) -> Teller:
    """Return a teller that POSTs the notice to an address.

    Raises:
        typer.BadParameter: It is no address of HTTP.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--notify-url") from None
    if parts.scheme not in ("http", "https") or not host:
        raise typer.BadParameter(
            "give an address such as https://example.org/hook", param_hint="--notify-url"
        )

    def send(document: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "astro-async"}
        try:
            request = urllib.request.Request(url, data=document, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=_URL_TIMEOUT_S):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            # The host only: the rest of an address may be a secret.
            raise NotToldError(f"{host} answered {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise NotToldError(f"{host} cannot be reached: {reason}") from None

    return Teller("url", send)


def tell_others(
    pipeline_dir: str, record: RunRecord | None, tellers: list[Teller], warn: Callable[[str], None]
) -> None:
    """Deliver the notice of a run, and those that could not be delivered before. Never raises for a failure.

    Args:
        pipeline_dir: Where runs are kept.
        record: The run that has just ended; None to deliver only what is left from before.
        tellers: The ways.
        warn: Called with a line for people for each way that fails.
    """
    disk = Disk()
    for teller in tellers:
        try:
            if record is not None:
                notice = derive_notice(record, exit_code_of(record))
                note_notice(run_directory(pipeline_dir, record.run_id), teller.channel, notice, disk)
            for run_id, each in scan_untold(pipeline_dir, teller.channel):
                teller.send(_encode(each))
                forget_notice(run_directory(pipeline_dir, run_id), teller.channel, disk)
        except NotToldError as error:
            warn(
                f"nobody was told by --notify-{teller.channel}: {safe(error)}; the next `astro run` with it "
                "tries again"
            )
        except StorageError as error:
            warn(f"--notify-{teller.channel}: {safe(error)}")


def _encode(notice: dict[str, Any]) -> bytes:
    return msgspec.json.encode(notice) + b"\n"
