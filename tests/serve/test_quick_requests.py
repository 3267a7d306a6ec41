"""Plain queries, which are answered without routes: what the route would answer, byte for byte."""

import pytest

from pairre.serve.bounds import MAX_K, MAX_NAME
from pairre.serve.http.quick import plain_arguments

PREDICT = "/api/v1/runs/atlas/predict"
PLAIN = [
    "head=France&relation=borders",
    "relation=borders&tail=France&k=3",
    "head=France&tail=Italy",
    "head=France&relation=borders&known=true&any=false&k=20",
    "relation=capital_of&tail=Peru&any=true",
    "head=Sao%20Tom%C3%A9&relation=borders",
    "head=Frnace&relation=borders",
    "head=France",
    "head=France&relation=borders&tail=Italy",
    "head=France&relation=borders&type=City",
    "head=%ff%fe&relation=borders",
    "head=a%00b&relation=borders",
    "head=France;relation=borders",
    "head=Sao+Tom%C3%A9&relation=borders",
]
UNUSUAL = [
    "",
    "head=France&&relation=borders",
    "%68ead=France&relation=borders",
    "head=France&relation=borders&k=0",
    f"head=France&relation=borders&k={MAX_K + 1}",
    "head=France&relation=borders&k=%D9%A3",
    "head=France&relation=borders&k=3&k=4",
    "head=&relation=borders&tail=France",
    "head=France&relation=borders&known=yes",
    "head=France&relation=borders&color=red",
    f"head={'x' * (MAX_NAME + 1)}&relation=borders",
]


@pytest.mark.parametrize("query", PLAIN)
def test_the_route_would_answer_the_same(server, query):
    assert plain_arguments(query.encode()) is not None
    quick = server.client.get(f"{PREDICT}?{query}")
    # A parameter that nobody knows is ignored by the route, and is not plain.
    routed = server.client.get(f"{PREDICT}?{query}&nobody=knows")
    assert quick.status_code == routed.status_code
    assert quick.content == routed.content
    assert dict(quick.headers) == dict(routed.headers)


@pytest.mark.parametrize("query", UNUSUAL)
def test_what_is_unusual_goes_to_the_route(server, query):
    assert plain_arguments(query.encode()) is None
    assert server.client.get(f"{PREDICT}?{query}").status_code in (200, 400, 404, 422)


def test_other_methods_and_runs_go_to_the_routes(server):
    assert server.client.get("/api/v1/runs/none/predict?head=France&relation=borders").status_code == 404
    assert server.client.delete(f"{PREDICT}?head=France&relation=borders").status_code == 405
    assert server.client.post(PREDICT, json={"queries": [{"head": "France", "relation": "borders"}]}).status_code == 200


def test_quick_requests_are_counted_as_their_route(server):
    server.client.get(f"{PREDICT}?head=France&relation=borders")
    assert 'route="/api/v1/runs/{run}/predict",status="200"' in server.client.get("/metrics").text
