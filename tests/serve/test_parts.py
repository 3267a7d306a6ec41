"""What is computed in the background: once, for every process, found after a restart, and never waited for."""

import threading

import pytest

import pairre
from pairre.serve import parts
from pairre.serve.answers import answer_call
from pairre.serve.contract import NotPreparedError, ServeError, error_of_values
from pairre.serve.parts import PARTS, Store, prepare
from pairre.serve.state import RunState
from serve.conftest import served


@pytest.fixture
def state(atlas_run, tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRRE_CACHE", str(tmp_path / "cache"))
    return RunState.open("atlas", atlas_run, "cpu")


def test_what_is_not_there_yet_is_said_and_left_out(state):
    for function, arguments in (("discover", {}), ("metrics_page", {})):
        with pytest.raises(NotPreparedError, match="still being computed") as caught:
            answer_call(state, function, arguments)
        assert caught.value.retry_after == 2.0
        assert str(error_of_values(caught.value.to_values())) == str(caught.value)
    page = answer_call(state, "relation_page", {"name": "borders"})
    assert [one["part"] for one in page["preparing"]] == list(PARTS)
    assert (page["discovered"], page["metrics"], page["patterns"]) == ([], [], [])
    landing = answer_call(state, "landing", {})
    assert landing["best_relations"] == []
    assert landing["questions"]


def test_parts_are_computed_once(state, atlas_run, monkeypatch):
    prepare(state.run, state.store)
    assert state.store.missing() == []
    links = answer_call(state, "discover", {"size": 5})
    monkeypatch.setattr(parts, "_COMPUTE", {})  # nothing is computed again
    again = RunState.open("atlas", atlas_run, "cpu")
    prepare(again.run, again.store)
    assert answer_call(again, "discover", {"size": 5}) == links
    assert answer_call(again, "metrics_page", {}) == answer_call(state, "metrics_page", {})


def test_another_calibration_is_another_store(state):
    folder = state.store.folder
    in_memory = pairre.Run(state.run.graph, state.run.recipe, state.run.model)
    state.run.calibration = pairre.calibrate(in_memory, base_rate=0.3)
    assert Store.of(state.run).folder != folder


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 100])
def test_a_damaged_part_is_computed_again(state, damage):
    prepare(state.run, state.store)
    links = answer_call(state, "discover", {})
    for file in state.store.folder.glob("*.*s*"):
        if file.suffix in (".json", ".safetensors"):
            file.write_bytes(damage)
    fresh = Store(state.store.folder)
    assert [one["part"] for one in fresh.missing()] == list(PARTS)
    prepare(state.run, fresh)
    state.store = fresh
    assert answer_call(state, "discover", {}) == links


def test_progress_is_seen_by_other_stores(state):
    other = Store(state.store.folder)
    assert other.done("links") == 0.0
    state.store.note("links", 0.25)
    assert other.done("links") == 0.25
    (state.store.folder / "links.progress").write_text("nonsense")
    assert Store(state.store.folder).done("links") == 0.0


def test_a_cache_that_cannot_be_written_is_no_fault(atlas_run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAIRRE_CACHE", str(tmp_path / "file"))
    state = RunState.open("atlas", atlas_run, "cpu")
    assert state.store.folder is None
    prepare(state.run, state.store)
    assert len(answer_call(state, "discover", {})["links"]) == 20


def test_preparation_stops_when_the_server_does(state):
    stopping = threading.Event()
    stopping.set()
    prepare(state.run, state.store, stopping.is_set)
    assert len(state.store.missing()) == len(PARTS)


def test_a_graph_without_held_out_triples(hostile_run, tmp_path):
    run = pairre.load_run(hostile_run, "cpu")
    none = run.graph.test[:0]
    graph = pairre.Graph("bare", run.graph.entities, run.graph.relations, run.graph.train, none, none)
    bare = pairre.Run(graph, run.recipe, run.model)
    state = RunState(bare, "bare")
    state.build()
    prepare(bare, state.store)
    with pytest.raises(ServeError, match="no split is held out"):
        answer_call(state, "metrics_page", {})
    found = answer_call(state, "predict", {"head": "100%", "relation": "<i>rel</i>", "any": True})
    assert {one["probability"] for one in found["answers"]} <= {None}
    assert answer_call(state, "landing", {})["best_relations"] == []
    assert answer_call(state, "entity_page", {"name": "100%"})["groups"]


def test_links_wait_for_nobody(atlas_run, tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRRE_CACHE", str(tmp_path))
    with served({"atlas": atlas_run}, prepares=False) as found:
        response = found.client.get("/api/v1/runs/atlas/discover")
        assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        assert response.json()["error"]["code"] == "preparing"
