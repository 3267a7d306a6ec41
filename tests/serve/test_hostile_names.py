"""Names are data: whatever they contain, every endpoint takes them as parameters and gives them back exactly."""

import csv
import io
import json

import pytest

from serve.conftest import HOSTILE, HOSTILE_RELATIONS

RELATION = HOSTILE_RELATIONS[0]
# As JSON holds them: characters that could steer a terminal or reverse a line are escapes in the bytes of an answer.
RAW = ["\x1b", "\u2028", "\u202e", "\x07"]


def names_of(value):
    """Yield the name of every entity and relation in an answer."""
    if isinstance(value, dict):
        if "shown" in value:
            yield value["name"]
        for part in value.values():
            yield from names_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from names_of(part)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/entity", {"name": "NAME"}),
        ("/neighbourhood", {"name": "NAME"}),
        ("/similar", {"name": "NAME"}),
        ("/predict", {"head": "NAME", "relation": RELATION, "known": True, "any": True}),
        ("/predict", {"relation": RELATION, "tail": "NAME", "k": 3, "any": True}),
        ("/search", {"q": "NAME"}),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_entities(server, path, parameters, name):
    given = {key: name if value == "NAME" else value for key, value in parameters.items()}
    response = server.client.get(f"/api/v1/runs/hostile{path}", params=given)
    assert response.status_code == 200, response.text
    assert name in set(names_of(response.json()))
    assert set(names_of(response.json())) <= {*HOSTILE, *HOSTILE_RELATIONS}
    assert not [character for character in RAW if character in response.text]
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", HOSTILE_RELATIONS, ids=ascii)
def test_relations(ask, name):
    assert ask("/relation", run="hostile", name=name)["relation"]["name"] == name
    assert name in [one["ref"]["name"] for one in ask("/search", run="hostile", q=name, kind="relation")["results"]]
    ask("/discover", run="hostile", relation=name)
    reasons = ask("/why", run="hostile", head=HOSTILE[0], relation=name, tail=HOSTILE[1])
    assert reasons["triple"]["relation"]["name"] == name


def test_the_beginning_of_a_hostile_name_finds_it(ask):
    for name in HOSTILE:
        found = [one["ref"]["name"] for one in ask("/search", run="hostile", q=name[:4], limit=100)["results"]]
        assert name in found, ascii(name)


def test_bodies_and_exports(server, tmp_path):
    triples = [[name, RELATION, HOSTILE[0]] for name in HOSTILE]
    client, path = server.client, "/api/v1/runs/hostile"
    found = client.post(f"{path}/score", json={"triples": triples}).json()["scores"]
    assert [one["head"]["name"] for one in found] == HOSTILE
    for head, relation, tail in triples:
        body = {"head": head, "relation": relation, "tail": tail, "verdict": "accept"}
        assert client.post(f"{path}/review", json=body).status_code == 200
    exported = client.get(f"{path}/review/export", params={"format": "json"})
    assert [[one["head"], one["relation"], one["tail"]] for one in exported.json()["triples"]] == triples
    assert exported.json()["summary"] == client.get(f"{path}/review/summary").json()
    table = client.get(f"{path}/review/export", params={"format": "csv"})
    assert table.headers["content-disposition"] == 'attachment; filename="hostile-accepted.csv"'
    rows = list(csv.DictReader(io.StringIO(table.content.decode(), newline="")))
    assert [[row["head"], row["relation"], row["tail"]] for row in rows] == triples
    stored = server.service.reviews["hostile"].path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["head"] for line in stored] == HOSTILE


@pytest.mark.parametrize("unit", [" (", "(", ")", " ()", "a:", "://", "/", "e\u0301", "\ufdfa", "<", "_", " "])
def test_long_texts_that_an_expression_could_choke_on(server, unit):
    """None of them is slow; a test that hangs says which is."""
    length = 8192 if unit.isascii() else 2000  # of addresses there is a limit, too
    for text in (unit * (length // len(unit)), f"<{unit * 1000}>"):
        for path, parameter in (("/entity", "name"), ("/search", "q"), ("/relation", "name")):
            response = server.client.get(f"/api/v1/runs/hostile{path}", params={parameter: text})
            assert response.status_code in (200, 404)


@pytest.mark.parametrize("name", [*HOSTILE, "no\x1b[2J", "\u202eno"], ids=lambda name: ascii(name)[:20])
def test_errors_show_names_without_control_characters(server, name):
    response = server.client.get("/api/v1/runs/atlas/entity", params={"name": name})
    assert response.status_code == 404
    message = response.json()["error"]["message"]
    assert not [character for character in RAW if character in message]
    assert len(message) < 300
