"""Requests made from the OpenAPI description, valid and not: none is a 500, and every answer is as described."""

from types import SimpleNamespace

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from serve.conftest import HOSTILE, HOSTILE_RELATIONS

schemathesis = pytest.importorskip("schemathesis")

from pairre.serve.http.app import Service, build_routes  # noqa: E402

NUM_EXAMPLES = 10  # of each operation, valid ones and others
SETTINGS = settings(
    phases=[Phase.generate],
    max_examples=NUM_EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
DESCRIPTION = schemathesis.openapi.from_dict(build_routes(Service(SimpleNamespace(numbers=dict), ["atlas"])).openapi())
EVERY = [operation.ok() for operation in DESCRIPTION.get_all_operations()]
OPERATIONS = {operation.label: operation for operation in EVERY if "{run}" in operation.label}
MODES = {mode.value: mode for mode in schemathesis.GenerationMode}


def check(client, operation, case):
    """Send a case; the answer must be one that the description has."""
    made = case.as_transport_kwargs(base_url="http://localhost")
    request = {key: made[key] for key in ("method", "url", "params", "headers", "json", "data") if key in made}
    if isinstance(request.get("data"), bytes | str):
        request["content"] = request.pop("data")
    try:
        response = client.request(**request)
    except httpx2.InvalidURL:  # too long for this client
        return
    assert response.status_code < 500 or response.status_code == 503, response.text
    if response.status_code == 405:
        return  # another method than the description has
    assert str(response.status_code) in operation.definition.raw["responses"], (response.status_code, response.text)
    if response.headers["content-type"] == "application/json":
        assert ("error" in response.json()) == (response.status_code >= 400)
        if response.status_code == 200:
            operation.validate_response(response)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_is_a_fault_of_the_server(server, label, mode):
    operation = OPERATIONS[label]

    @SETTINGS
    @given(case=operation.as_strategy(generation_mode=MODES[mode]), run=st.sampled_from(["atlas", "hostile", None]))
    def send(case, run):
        if run and "run" in case.path_parameters:
            case.path_parameters["run"] = run
        check(server.client, operation, case)

    send()


ENTITY, RELATION = st.sampled_from(HOSTILE), st.sampled_from(HOSTILE_RELATIONS)


@pytest.mark.slow
@settings(SETTINGS, max_examples=60)
@given(
    head=ENTITY | st.none(),
    relation=RELATION | st.none(),
    tail=ENTITY | st.none(),
    k=st.integers(1, 1000),
    known=st.booleans(),
    any=st.booleans(),
)
def test_predictions_with_all_options(server, head, relation, tail, **options):
    names = {"head": head, "relation": relation, "tail": tail}
    query = {member: name for member, name in names.items() if name is not None}
    response = server.client.get("/api/v1/runs/hostile/predict", params={**query, **options})
    assert response.status_code == (200 if len(query) == 2 else 400), response.text
    posted = server.client.post("/api/v1/runs/hostile/predict", json={"queries": [names], **options})
    assert posted.status_code == response.status_code
    if len(query) == 2:
        assert posted.json()["results"] == [response.json()]
