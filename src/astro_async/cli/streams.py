"""The standard streams at the end of a command: a reader that went away, a disk that is full.

Needed by every command, `--help` included, so nothing is imported for it but the standard library.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

__all__ = ["finish_streams", "flush_streams", "silence_stdout"]


def silence_stdout() -> None:
    """Send what is still to come to nowhere, so that the end of the process does not trip over it."""
    with contextlib.suppress(OSError, io.UnsupportedOperation, ValueError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def flush_streams() -> OSError | None:
    """Flush stdout and stderr; a closed pipe is no error.

    Returns:
        Why what was printed could not be written, such as a full disk; None if all is well.
    """
    failure: OSError | None = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            silence_stdout()
        except OSError as error:
            failure = error
        except ValueError:
            # Closed already: whoever closed it has flushed it.
            continue
    return failure


def finish_streams(failure: OSError | None = None) -> None:
    """Flush stdout and stderr as the last act of a command.

    Args:
        failure: Why something could not be printed, where that is known already.

    Raises:
        SystemExit: What was printed could not be written, so an exit code of 0 would be a lie.
    """
    failure = flush_streams() or failure
    if failure is None:
        return
    silence_stdout()
    with contextlib.suppress(OSError, ValueError):
        print(f"error: the output cannot be written: {failure.strerror}", file=sys.stderr, flush=True)
    ending = sys.exc_info()[1]
    if not isinstance(ending, SystemExit) or not ending.code:
        raise SystemExit(1)
