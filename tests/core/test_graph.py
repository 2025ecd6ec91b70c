"""The graph: what is refused, with the steps named, and the indexes that scheduling walks."""

from __future__ import annotations

import pytest

from astro_async._core.graph import Graph
from astro_async.exceptions import InvalidNameError, PipelineError
from core.samples import node


def test_an_empty_pipeline_is_a_graph() -> None:
    graph = Graph([])
    assert (graph.position, graph.dependents, graph.writers, graph.ranks) == ({}, {}, {}, [])


def test_positions_and_dependents_follow_registration_order() -> None:
    graph = Graph([node("a"), node("b", after=["a"]), node("c", after=["a", "b"]), node("d", after=["a"])])
    assert graph.position == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert graph.dependents == {0: [1, 2, 3], 1: [2]}


def test_a_dependency_named_twice_is_one_edge() -> None:
    graph = Graph([node("a"), node("b", after=["a", "a"])])
    assert graph.dependents == {0: [1]}


def test_ranks_count_the_earlier_writers_of_each_file() -> None:
    graph = Graph(
        [
            node("r0", reads=["f"]),
            node("w1", writes=["f", "g"]),
            node("r2", reads=["f", "h"]),
            node("w3", writes=["f"]),
            node("mixed", reads=["g"], writes=["f"]),
            node("r5", reads=["f", "g"]),
        ]
    )
    assert graph.writers == {"f": [1, 3, 4], "g": [1]}
    assert graph.ranks == [(0,), (0, 0), (1, 0), (1,), (1, 2), (3, 1)]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("nobody", "step 'b' depends on 'nobody', which is not a step"),
        ("b", "step 'b' depends on itself"),
        ("c", "step 'b' depends on 'c', which is registered after it"),
    ],
)
def test_dependencies_that_cannot_be(after: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Graph([node("a"), node("b", after=["a", after]), node("c")])
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_id_that_is_used_twice_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="step_id 'a' is used twice"):
        Graph([node("a"), node("b"), node("a")])


def test_an_id_that_is_used_twice_is_refused_whatever_object_it_is() -> None:
    with pytest.raises(InvalidNameError, match="step_id 'check-it' is used twice"):
        Graph([node("check-it"), node("-".join(["check", "it"]))])


def test_ids_that_differ_only_by_case_are_refused() -> None:
    with pytest.raises(InvalidNameError) as caught:
        Graph([node("load"), node("x"), node("Load")])
    assert "'load' and 'Load' differ only by case" in str(caught.value)


@pytest.mark.parametrize("step_id", ["", "..", "a/b", "ingest", "a.b", "a\0"])
def test_ids_that_are_no_names_are_refused(step_id: str) -> None:
    with pytest.raises(InvalidNameError, match="step_id"):
        Graph([node("a"), node(step_id)])
