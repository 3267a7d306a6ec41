"""Every endpoint of the API on the bundled graph: what is answered, in the documented shape, and what is refused."""

import json

import pytest
from pydantic import TypeAdapter

import pairre
from pairre.serve import answers, schemas
from pairre.serve.http.examples import ERROR, EXAMPLES

SHAPES = {
    **{"runs": schemas.Runs, "landing": schemas.Landing, "search": schemas.SearchResults, "entity": schemas.EntityPage},
    **{"neighbourhood": schemas.Neighbourhood, "relation": schemas.RelationPage, "metrics": schemas.Metrics},
    **{"predict": schemas.Prediction, "predict_many": schemas.Predictions, "score": schemas.Scores},
    **{"discover": schemas.Links, "similar": schemas.SimilarEntities, "why": schemas.Reasons},
    **{"review": schemas.ReviewLinks, "judged": schemas.Judged, "summary": schemas.ReviewSummary},
}
NAME = {"name": "France"}
TRIPLE = {"head": "France", "relation": "borders", "tail": "Italy"}
ENDPOINTS = [
    ("landing", "", {}),
    ("search", "/search", {"q": "fran"}),
    ("entity", "/entity", NAME),
    ("neighbourhood", "/neighbourhood", NAME),
    ("relation", "/relation", {"name": "borders"}),
    ("metrics", "/metrics", {}),
    ("predict", "/predict", {"head": "France", "relation": "borders"}),
    ("predict", "/predict", {"tail": "Peru", "relation": "capital_of", "known": True}),
    ("predict", "/predict", {"head": "France", "tail": "Italy", "known": True, "any": True}),
    ("discover", "/discover", {}),
    ("discover", "/discover", {"relation": "borders", "page": 2, "size": 5}),
    ("similar", "/similar", NAME),
    ("why", "/why", TRIPLE),
    ("why", "/why", {**TRIPLE, "side": "head", "k": 2}),
    ("review", "/review", {"size": 2}),
    ("summary", "/review/summary", {}),
]


def fits(shape, value):
    adapter = TypeAdapter(SHAPES[shape])
    validated = adapter.validate_json(json.dumps(value), strict=True)
    assert adapter.dump_python(validated, mode="json") == value  # nothing that is not documented


@pytest.fixture(scope="module")
def run(atlas_run):
    return pairre.load_run(atlas_run, "cpu")


@pytest.mark.parametrize(("shape", "path", "parameters"), ENDPOINTS, ids=lambda value: str(value)[:40])
def test_every_answer_has_its_documented_shape(ask, shape, path, parameters):
    fits(shape, ask(path, **parameters))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_examples_have_their_documented_shape(shape):
    fits(shape, EXAMPLES[shape])


def test_the_openapi_description_has_an_example_of_every_answer(server):
    found = server.client.get("/api/v1/openapi.json").json()
    assert found["openapi"].startswith("3.")
    assert found["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    operations = [(path, item) for path, items in found["paths"].items() for item in items.values()]
    assert len(operations) >= 18
    for path, operation in operations:
        if path.startswith("/api/v1/runs") and not path.endswith("export"):
            assert operation["responses"]["200"]["content"]["application/json"]["example"], path
            assert operation["responses"]["422"]["content"]["application/json"]["example"] == ERROR
            assert "$ref" in operation["responses"]["200"]["content"]["application/json"]["schema"], path


def test_runs(server):
    found = server.client.get("/api/v1/runs").json()
    fits("runs", found)
    assert [run["name"] for run in found["runs"]] == ["atlas", "hostile"]
    assert (found["default"], found["version"]) == ("atlas", pairre.__version__)
    assert found["runs"][0]["num_triples"] == {"train": 6995, "valid": 389, "test": 389}


def test_the_landing_page(ask, run):
    found = ask("")
    assert found["num_entities"] == run.graph.num_entities
    assert found["preparing"] == []
    best, worst = ([row["mrr"] for row in found[f"{kind}_relations"]] for kind in ("best", "worst"))
    assert best == sorted(best, reverse=True)
    assert worst == sorted(worst)
    assert min(best) >= max(worst)
    metrics = pairre.evaluate(run, by="relation")["by_relation"]
    for row in found["best_relations"]:
        assert row["mrr"] == pytest.approx(metrics[row["relation"]["name"]]["both"]["mrr"])
    assert [sum(one[m] is None for m in ("head", "relation", "tail")) for one in found["questions"]] == [1, 1, 1]
    assert found["questions"][0]["tail"] is None
    for question in found["questions"]:
        query = {m: question[m]["name"] for m in ("head", "relation", "tail") if question[m]}
        assert ask("/predict", **query)["answers"], question["text"]


@pytest.mark.parametrize(
    ("typed", "kind", "expected", "match"),
    [
        ("France", "any", "France", "exact"),
        ("fran", "any", "France", "prefix"),
        ("king", "entity", "United Kingdom", "word"),
        ("Frnace", "any", "France", "typo"),
        ("Untied Kingdom", "any", "United Kingdom", "typo"),
        ("sao", "any", "São Tomé and Príncipe", "prefix"),
        ("bord", "relation", "borders", "prefix"),
        ("bordres", "any", "borders", "typo"),
    ],
)
def test_search(ask, typed, kind, expected, match):
    found = ask("/search", q=typed, kind=kind)["results"]
    assert (expected, match) in [(one["ref"]["name"], one["match"]) for one in found]
    if match == "exact":
        assert found[0]["ref"]["name"] == expected
    assert kind == "any" or {one["kind"] for one in found} == {kind}


def test_a_search_without_letters_finds_nothing(ask):
    assert ask("/search", q="")["results"] == ask("/search", q="  \t")["results"] == []
    assert len(ask("/search", q="a", limit=3)["results"]) == 3


def test_an_entity_page_has_all_known_facts_and_likely_new_ones(ask, run):
    found, graph = ask("/entity", name="France", limit=500), run.graph
    id = graph.find_entity("France")
    facts = {
        (names, split)
        for split in ("train", "valid", "test")
        for names in graph.names(graph.split(split)[(graph.split(split)[:, (0, 2)] == id).any(1)])
    }
    shown = set()
    for group in found["groups"]:
        for fact in group["facts"]:
            ends = ("France", fact["entity"]["name"])
            head, tail = ends if group["side"] == "tail" else ends[::-1]
            shown.add(((head, group["relation"]["name"], tail), fact["split"]))
        for answer in group["likely"]:
            names = tuple(answer[member]["name"] for member in ("head", "relation", "tail"))
            assert names not in {fact for fact, _ in facts}
            assert answer["known"] is None
    assert shown == facts
    assert found["num_facts"] == len(facts)
    assert any(group["likely"] for group in found["groups"])
    assert [one["entity"]["name"] for one in found["similar"]] == [n.entity for n in pairre.similar(run, "France")]
    few = ask("/entity", name="France", limit=1)
    assert max(len(group["facts"]) for group in few["groups"]) == 1
    assert few["num_facts"] == len(facts)


def test_a_neighbourhood(ask, run):
    found = ask("/neighbourhood", name="France", limit=12)
    names = [node["ref"]["name"] for node in found["nodes"]]
    assert (names[0], len(set(names)), len(names)) == ("France", len(names), 13)
    known = {names for split in ("train", "valid", "test") for names in run.graph.names(run.graph.split(split))}
    predicted = 0
    for edge in found["edges"]:
        assert {edge["head"], edge["tail"]} <= set(names)
        assert ((edge["head"], edge["relation"]["name"], edge["tail"]) in known) != edge["predicted"]
        predicted += edge["predicted"]
    assert predicted


def test_a_relation_page(ask, run):
    found = ask("/relation", name="borders")
    assert found["category"] == "N-N"
    assert ("symmetry", "borders(x, y) ⇒ borders(y, x)") in [(p["pattern"], p["text"]) for p in found["patterns"]]
    assert sum(found["histogram"]["counts"]) == 32
    assert len(found["histogram"]["edges"]) == len(found["histogram"]["counts"]) + 1
    values = {metric["key"]: metric for metric in found["metrics"]}
    expected = pairre.evaluate(run, by="relation")["by_relation"]["borders"]
    assert values["mrr"]["value"] == pytest.approx(expected["both"]["mrr"])
    assert values["mrr"]["interval"][0] <= values["mrr"]["value"] <= values["mrr"]["interval"][1]
    assert found["num_ranked"] == expected["num_triples"]
    assert found["discovered"] == ask("/discover", relation="borders", size=10)["links"]
    assert len({fact["head"]["name"] for fact in found["sample"]}) == len(found["sample"]) == 10
    errors = [error["rank"] for error in found["worst_errors"]]
    assert errors == sorted(errors, reverse=True)
    for error in found["worst_errors"]:
        assert error["triple"][error["side"]] not in error["better"]


def test_metrics_are_those_of_evaluate(ask, run):
    found, expected = ask("/metrics"), pairre.evaluate(run, by="category")
    for side in ("both", "head", "tail"):
        assert {m["key"]: m["value"] for m in found[side]} == pytest.approx(expected[side])
    assert [one["category"] for one in found["by_category"]] == list(expected["by_category"])
    assert found["reliability"]
    assert found["split"] == "test"


@pytest.mark.parametrize("query", [{"head": "Kenya"}, {"tail": "Kenya"}, {"tail": "Kenya", "known": True}])
def test_predictions_are_those_of_predict(ask, run, query):
    found = ask("/predict", **query, relation="borders", k=7)
    expected = pairre.predict(run, **query, relation="borders", k=7)
    assert found["num_implausible"] == expected.num_implausible
    for one, other in zip(found["answers"], expected, strict=True):
        assert tuple(one[m]["name"] for m in ("head", "relation", "tail")) == (other.head, other.relation, other.tail)
        assert (one["rank"], one["known"]) == (other.rank, other.known)
        assert one["score"] == pytest.approx(other.score, abs=1e-5)
        assert one["probability"] == pytest.approx(other.probability, abs=1e-5)


def test_many_queries_are_answered_as_one_by_one(server, ask):
    queries = [{"head": "France", "relation": "borders"}, {"relation": "borders", "tail": "Chad"}]
    queries += [{"head": "Chad", "tail": "Niger"}, {"head": "Peru", "relation": "speaks", "tail": ""}]
    posted = server.client.post("/api/v1/runs/atlas/predict", json={"queries": queries, "k": 4, "any": True})
    assert posted.status_code == 200, posted.text
    fits("predict_many", posted.json())
    for query, result in zip(queries, posted.json()["results"], strict=True):
        alone = ask("/predict", **{name: text for name, text in query.items() if text}, k=4, any=True)
        assert [a["tail"]["name"] for a in result["answers"]] == [a["tail"]["name"] for a in alone["answers"]]
        assert result["query"] == alone["query"]


def test_scores_are_those_of_score(server, run):
    triples = [["France", "borders", "Italy"], ["Chad", "speaks", "French"]]
    found = server.client.post("/api/v1/runs/atlas/score", json={"triples": triples}).json()
    fits("score", found)
    for one, other in zip(found["scores"], pairre.score(run, triples), strict=True):
        assert one["score"] == pytest.approx(other.score)
        assert (one["head_rank"], one["tail_rank"], one["known"]) == (other.head_rank, other.tail_rank, other.known)


def test_discovered_links_are_those_of_discover(ask, run):
    expected = [(link.head, link.relation, link.tail) for link in pairre.discover(run, k=50)]
    pages = [ask("/discover", page=page, size=25) for page in (1, 2)]
    links = [link for page in pages for link in page["links"]]
    assert [tuple(link[m]["name"] for m in ("head", "relation", "tail")) for link in links] == expected
    assert [link["rank"] for link in links] == list(range(1, 51))
    assert ask("/discover", page=10_000)["links"] == []
    of_one = ask("/discover", relation="borders", size=200)
    assert {link["relation"]["name"] for link in of_one["links"]} == {"borders"}
    assert of_one["total"] >= len(of_one["links"]) > 0


def test_reasons_are_those_of_explain(ask, run):
    found, expected = ask("/why", **TRIPLE), pairre.explain(run, **TRIPLE)
    assert found["triple"]["rank"] == expected.rank
    assert [rule["text"] for rule in found["rules"]] == [rule.rule for rule in expected.rules]
    names = [tuple(one["fact"][m]["name"] for m in ("head", "relation", "tail")) for one in found["necessary"]]
    assert names == [(f.fact.head, f.fact.relation, f.fact.tail) for f in expected.facts]
    for one, other in zip(found["necessary"], expected.facts, strict=True):
        assert one["drop"]["rank_after"] == other.rank
        assert one["drop"]["rank_before"] == expected.refits[other.of].rank
        assert one["fact"]["split"] == "train"
    assert found["similar_facts"]


@pytest.mark.parametrize(
    ("path", "parameters", "status", "words"),
    [
        ("/predict", {"head": "France"}, 400, "give two of"),
        ("/predict", {"head": "France", "relation": "borders", "tail": "Italy"}, 400, "give two of"),
        ("/predict", {"head": "Frnace", "relation": "borders"}, 404, "Frnace"),
        ("/predict", {"head": "France", "relation": "bordres"}, 404, "bordres"),
        ("/predict", {"head": "France", "relation": "borders", "k": 0}, 422, "k:"),
        ("/predict", {"head": "France", "relation": "borders", "k": 1001}, 422, "k:"),
        ("/predict", {"head": "France", "relation": "borders", "k": "1e9"}, 422, "k:"),
        ("/predict", {"head": "France", "relation": "borders", "type": "country"}, 404, "type"),
        ("/predict", {"head": "France", "tail": "Italy", "type": "country"}, 400, "type"),
        ("/entity", {"name": ""}, 422, "name"),
        ("/entity", {}, 422, "name"),
        ("/entity", {"name": "x" * 9000}, 422, "name"),
        ("/entity", {"name": "\0"}, 404, "x00"),
        ("/entity", {"name": "France", "limit": 501}, 422, "limit"),
        ("/discover", {"page": 0}, 422, "page"),
        ("/discover", {"size": 201}, 422, "size"),
        ("/discover", {"relation": "nothing"}, 404, "nothing"),
        ("/why", {**TRIPLE, "side": "relation"}, 422, "side"),
        ("/why", {**TRIPLE, "k": 21}, 422, "k:"),
        ("/search", {"q": "a", "kind": "other"}, 422, "kind"),
        ("/review/export", {"format": "exe"}, 422, "format"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_makes_no_sense_is_one_line(server, path, parameters, status, words):
    response = server.client.get(f"/api/v1/runs/atlas{path}", params=parameters)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert words in error["message"]
    assert len(error["message"].splitlines()) == 1
    assert set(error) == {"code", "message", "suggestions"}


def test_near_names_are_suggested(server):
    found = server.client.get("/api/v1/runs/atlas/entity", params={"name": "Frnace"}).json()["error"]
    assert (found["code"], found["suggestions"][0]) == ("unknown_name", "France")
    found = server.client.get("/api/v1/runs/altas").json()["error"]
    assert found["suggestions"] == ["atlas", "hostile"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/predict", {"queries": []}, 422),
        ("/predict", {"queries": [{"head": "France", "relation": "borders"}] * 1001}, 422),
        ("/predict", {"queries": [{"head": "France", "relation": "borders"}] * 100, "k": 1000}, 422),
        ("/predict", {"queries": [{"head": "France"}]}, 400),
        ("/predict", {"queries": [{"head": "Frnace", "relation": "borders"}]}, 404),
        ("/predict", {"queries": [{"head": "France", "relation": "borders", "path": "/etc"}]}, 422),
        ("/predict", {"queries": [{"head": "\ud800", "relation": "borders"}]}, 422),
        ("/score", {"triples": [["France", "borders"]]}, 422),
        ("/score", {"triples": [["France", "borders", "Frnace"]]}, 404),
        ("/score", {"triples": [["France", "borders", ""]]}, 422),
        ("/review", {**TRIPLE, "verdict": "maybe"}, 422),
        ("/review", {**TRIPLE, "tail": "Frnace", "verdict": "accept"}, 404),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_bodies_that_make_no_sense(server, path, body, status):
    response = server.client.post(
        f"/api/v1/runs/atlas{path}", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert response.status_code == status, response.text
    assert set(response.json()["error"]) == {"code", "message", "suggestions"}


def test_a_body_that_is_no_json(server):
    for content, kind in ((b"{", "application/json"), (b"[" * 100_000, "application/json"), (b"a=b", "text/plain")):
        response = server.client.post("/api/v1/runs/atlas/score", content=content, headers={"content-type": kind})
        assert response.status_code in (400, 422), response.text


@pytest.mark.parametrize("path", ["/api/v1/none", "/api/v2/runs", "/static/../../../etc/passwd", "/static/none.js"])
def test_there_is_nothing_else(server, path):
    response = server.client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_probes_and_metrics(server, ask):
    assert server.client.get("/health").json() == server.client.get("/ready").json() == {"status": "ok"}
    ask("/search", q="a")
    found = server.client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    assert 'pairre_requests_total{route="/api/v1/runs/{run}/search",status="200"}' in found.text
    assert "pairre_request_seconds_bucket" in found.text
    assert "pairre_engine_waiting 0.0" in found.text


def test_the_page_and_its_files(server):
    page = server.client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    script = server.client.get("/static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    again = server.client.get("/static/main.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    packed = {"if-none-match": f"W/{script.headers['etag']}"}  # as proxies say that pack what they pass on
    assert server.client.get("/static/main.js", headers=packed).status_code == 304
    assert server.client.head("/").status_code == 200


def test_a_fault_of_the_program_is_a_500_without_details(server, monkeypatch):
    monkeypatch.setitem(answers.FUNCTIONS, "similar", lambda *_, **__: 1 / 0)
    response = server.client.get("/api/v1/runs/atlas/similar", params=NAME)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal"
    assert "division" not in response.text
