"""A bare pull loop on anyio: eight workers take what is ready, by hand, and count the edges down.

Threads that stay for plain steps, tasks for async ones. No records, no names, no errors.
"""

from __future__ import annotations

import math
from collections import deque
from importlib.metadata import version
from queue import SimpleQueue

import anyio
import anyio.lowlevel
import anyio.to_thread

from benchmarks.protocol import JOBS, Prepared, Task, serve
from benchmarks.shapes import Edges


def prepare(task: Task) -> Prepared:
    """Turn the edges round: for each step, who waits for it, and for how many it waits."""
    followers, waits = turn_round(task.edges)
    done: list[int] = []
    pull = pull_in_tasks if task.kind == "async" else pull_in_threads
    # Loads the event loop, which is start-up.
    anyio.run(anyio.sleep, 0)

    def run() -> None:
        anyio.run(pull, task, followers, waits, done)

    def check() -> None:
        assert sorted(done) == list(range(len(task.edges)))

    return Prepared(run, check)


def turn_round(edges: Edges) -> tuple[list[list[int]], list[int]]:
    """Return for each step the steps behind it, and the number of steps before it."""
    followers: list[list[int]] = [[] for _ in edges]
    for position, earlier in enumerate(edges):
        for each in earlier:
            followers[each].append(position)
    return followers, [len(earlier) for earlier in edges]


async def pull_in_threads(task: Task, followers: list[list[int]], waits: list[int], done: list[int]) -> None:
    """Run the graph in threads; the loop is told of what is done and says what is next."""
    ready: SimpleQueue[int | None] = SimpleQueue()
    outcomes: deque[int] = deque()
    news = anyio.Event()
    loop = anyio.lowlevel.current_token().native_token

    def pull() -> None:
        while (position := ready.get()) is not None:
            task.work()
            was_empty = not outcomes
            outcomes.append(position)
            if was_empty:
                loop.call_soon_threadsafe(tell)  # type: ignore[attr-defined]

    def tell() -> None:
        news.set()

    async with anyio.create_task_group() as group:
        limiter = anyio.CapacityLimiter(math.inf)
        for _ in range(JOBS):
            group.start_soon(lambda: anyio.to_thread.run_sync(pull, limiter=limiter))
        for position, count in enumerate(waits):
            if not count:
                ready.put(position)
        while len(done) < len(waits):
            await news.wait()
            news = anyio.Event()
            while outcomes:
                position = outcomes.popleft()
                done.append(position)
                for follower in followers[position]:
                    waits[follower] -= 1
                    if not waits[follower]:
                        ready.put(follower)
        for _ in range(JOBS):
            ready.put(None)


async def pull_in_tasks(task: Task, followers: list[list[int]], waits: list[int], done: list[int]) -> None:
    """Run the graph of async steps in tasks of the loop."""
    ready = deque(position for position, count in enumerate(waits) if not count)

    async def step() -> None:
        task.work()

    async def pull() -> None:
        while ready:
            position = ready.popleft()
            await step()
            done.append(position)
            for follower in followers[position]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(JOBS):
            group.start_soon(pull)


if __name__ == "__main__":
    serve(version("anyio"), prepare)
