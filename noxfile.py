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
    session.run("python", "-m", "pytest", *session.posargs)


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
    """Build the documentation; a warning, such as a link to nothing, is an error."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html")


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
