"""The document and the API say the same: schemathesis sends what fits and what does not, with Redis there and away."""

from __future__ import annotations

import secrets

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from dayjob.web import v1
from dayjob.web.openapi import document
from server import running
from web.conftest import running_console

load_all_checks()
DOCUMENT = document(v1.ENDPOINTS)
schema = schemathesis.openapi.from_dict(DOCUMENT)
#: Whether Redis is there makes no difference to what is refused before it is asked, so a few will do.
short = schemathesis.openapi.from_dict(DOCUMENT)
short.config.phases.coverage.enabled = False

few = settings(
    max_examples=8, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
)  # fmt: skip


def too_large(response) -> list:
    """The checks that do not apply to a body that is refused for its size: they do not count that as a refusal."""
    return [negative_data_rejection] if response.status_code == 413 else []


@pytest.fixture(scope="module")
def filled(server):
    """A console with something in every state."""
    with running_console(server.url, "openapi" + secrets.token_hex(4)) as console:
        fill(console.admin)
        yield console


def fill(admin) -> None:
    for n in range(3):
        admin.enqueue("mail", {"to": n, "password": "hunter2"})
    admin.enqueue("later", {"x": [1, None, "é"]}, delay=5000)
    job = admin.enqueue("mail", {}).subject.split()[1]
    admin.kill(job)


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """A console whose Redis was stopped."""
    with running(tmp_path_factory.mktemp("away")) as server, running_console(server.url, "away") as console:
        fill(console.admin)
        server.kill()
        yield console


@schema.parametrize()
@few
def test_every_address_does_as_the_document_says(case, filled):
    jobs = case.body.get("jobs") if isinstance(case.body, dict) else None
    if isinstance(jobs, list) and 20 < len(jobs) <= 500:
        # Hundreds of jobs that are nowhere are looked for everywhere: as true with twenty.
        del jobs[20:]
    if case.path.endswith("/jobs/retry_in_waves"):
        # It waits until its jobs have run, and no pool runs here; test_v1 has it.
        return
    response = case.call(base_url=filled.url, timeout=60)
    # What a filter or a cursor looks like, what goes with which state, and that a span has an end behind its beginning,
    # is more than a schema says.
    loose = (
        "/jobs", "/jobs/count", "/jobs/apply", "/jobs/move", "/job/move", "/job/reschedule", "/history", "/history/counts",
    )  # fmt: skip
    free = [positive_data_acceptance] if case.path.endswith(loose) else []
    case.validate_response(response, excluded_checks=[*free, *too_large(response)])


@short.parametrize()
@few
def test_without_redis_every_address_says_so(case, away):
    response = case.call(base_url=away.url, timeout=60)
    assert response.status_code < 500 or response.status_code == 503
    case.validate_response(
        response, excluded_checks=[not_a_server_error, positive_data_acceptance, *too_large(response)]
    )
    if response.status_code == 503:
        assert "Redis does not answer" in response.json()["error"]


def test_the_document_has_every_route_and_no_other():
    described = {(path, method.upper()) for path, methods in DOCUMENT["paths"].items() for method in methods}
    served = {(route.path, method) for route in v1.routes() for method in route.methods - {"HEAD"}}
    assert described == served
    assert len(described) > 35


def test_nothing_that_must_stay_hidden_is_described():
    schemas = DOCUMENT["components"]["schemas"]
    assert "payload" not in schemas["JobView"]["properties"]
    assert "entry" not in str(schemas["BrokenView"])
    assert {"progress", "left"} <= set(schemas["BusyWorker"]["properties"])


def test_every_address_is_described_in_words():
    for path, methods in DOCUMENT["paths"].items():
        for method, told in methods.items():
            assert told["summary"].endswith("."), path
            assert {"200", "400", "401", "403", "503"} <= set(told["responses"]), path
            assert ("requestBody" in told) == (method == "post"), path


def test_the_document_is_served(filled):
    served = filled.api("/openapi.json")
    assert served["openapi"] == "3.1.0"
    assert set(served["paths"]) == set(DOCUMENT["paths"])


@pytest.mark.parametrize(
    "endpoint",
    # These need a pool at work; test_v1 and the tests of answers have one.
    [
        one
        for one in v1.ENDPOINTS
        if one.method == "GET"
        and one.path
        not in (
            "/pool/stacks",
            "/pool",
            "/schedule",
            "/batch",
            "/batch/audit",
            "/workflow",
            "/workflow/audit",
        )
    ],
    ids=lambda one: one.path,
)
def test_the_document_names_the_fields_that_are_there(endpoint, filled):
    """The other way round: no answer has a field that the document does not know."""
    needed = {
        "/search": {"q": "mail"},
        "/queue": {"name": "mail"},
        "/queue/keys": {"name": "mail"},
        "/spread": {"name": "mail"},
        "/source": {"source": "acme"},
        "/jobs": {"state": "dead"},
        "/jobs/count": {"state": "dead"},
    }
    job = filled.api("/jobs", state="dead")["jobs"][0]["id"]
    group = filled.api("/failures")["groups"][0]
    needed["/failures/group"] = {"name": group["name"], "kind": group["kind"]}
    found = filled.api(
        endpoint.path,
        **needed.get(
            endpoint.path,
            {"id": job} if endpoint.path.startswith("/job") and "types" not in endpoint.path else {},
        ),
    )
    told = DOCUMENT["paths"][f"/api/v1{endpoint.path}"]["get"]["responses"]["200"]["content"][
        "application/json"
    ]["schema"]
    if endpoint.path != "/openapi.json":
        compare(found, told)


def compare(value, told) -> None:
    if "$ref" in told:
        told = DOCUMENT["components"]["schemas"][told["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "properties" in told:
        assert set(value) == set(told["properties"]), told["title"]
        for name, item in value.items():
            compare(item, told["properties"][name])
    if isinstance(value, list) and isinstance(told.get("items"), dict):
        for item in value:
            compare(item, told["items"])
