"""The API on CoDEx-S, whose entities are identifiers and whose relations have labels and types."""

import pytest

import pairre
from serve.conftest import SMALL, served


@pytest.fixture(scope="module")
def codex(tmp_path_factory):
    import os
    from pathlib import Path

    folder = Path(os.environ.get("PAIRRE_DATA") or "/nonexistent") / "codex-s"
    if not folder.is_dir():
        pytest.skip("PAIRRE_DATA does not point at a folder with CoDEx-S")
    labels, types = folder / "relation-labels.tsv.gz", folder / "types.tsv.gz"
    graph = pairre.load_graph(folder, labels=labels, types=types)
    run = pairre.train(graph, SMALL).save(tmp_path_factory.mktemp("runs") / "codex")
    with served({"codex": run}) as found:
        found.engine._preparation.join()

        def ask(path, **parameters):
            response = found.client.get(f"/api/v1/runs/codex{path}", params=parameters)
            assert response.status_code == 200, response.text
            return response.json()

        yield ask


@pytest.mark.slow
def test_identifiers_labels_and_types(codex):
    landing = codex("")
    assert len(landing["sample_entities"]) > 1
    assert all(sample["type"] for sample in landing["sample_entities"])
    sizes = [sample["num_entities"] for sample in landing["sample_entities"]]
    assert sizes == sorted(sizes, reverse=True)
    relation = landing["best_relations"][0]["relation"]
    assert relation["name"].startswith("P")
    assert relation["label"] == relation["shown"] != relation["name"]
    assert relation in [one["ref"] for one in codex("/search", q=relation["label"])["results"]]
    by_label, by_name = (codex("/relation", name=relation[key]) for key in ("label", "name"))
    assert by_label == by_name
    entity = landing["sample_entities"][0]["entities"][0]
    page = codex("/entity", name=entity["name"])
    assert entity["type"] in page["types"]
    assert page["entity"] == entity
    assert codex("/neighbourhood", name=entity["name"])["edges"]


@pytest.mark.slow
def test_answers_of_one_type(codex):
    question = next(one for one in codex("")["questions"] if one["tail"] is None)
    names = {"head": question["head"]["name"], "relation": question["relation"]["name"]}
    answers = codex("/predict", **names, k=20)["answers"]
    type = answers[0]["tail"]["type"]
    of_type = codex("/predict", **names, k=20, type=type)["answers"]
    assert of_type
    for one in of_type:
        assert type in codex("/entity", name=one["tail"]["name"])["types"]
    why = codex("/why", **names, tail=answers[0]["tail"]["name"], k=2)
    assert why["triple"]["tail"] == answers[0]["tail"]
