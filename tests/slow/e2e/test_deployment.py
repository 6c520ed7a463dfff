"""A real `cdk bootstrap`, `deploy` and `destroy` into ministack, and what was deployed at work.

The template, the assets and the settings of the functions are those of a deployment to AWS, but for
the platform of the packages and the switches that `docs/deploying.md` names. ministack does not
cover, and so neither do these tests:

- the function `live`: ministack calls a handler and knows no exec wrapper; it gathers streamed
  bodies (`tests/integration/runtime` and `tests/e2e` run it against the Runtime API)
- the distribution on the way of a request: no cache, no tags, and none of the module `cloudfront`
  that the viewer function asks for (`tests/integration/edge`)
- permissions, signatures, the firewall, reserved concurrency, memory, SnapStart and traces: taken
  from the template, and without effect
- the schedule of the rotation, and functions on arm64 with Lambda's own Python
- runs of the Glue jobs: it has no Spark (`tests/integration/glue` runs them on one); the jobs,
  their schedules and the database are there
- the protocol of a WebSocket: it chooses none whatever `cable` answers, so that stock clients leave
  (`tests/e2e` runs them); why a handshake is refused: it is 403 always
- messages of several clients side by side: what comes from WebSockets waits for one environment
- records that `dispatch` reports as failed: they do not come again
- a heartbeat that hands over to the next one, after five minutes (`tests/integration/action_cable`)
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from websockets import InvalidStatus

from devtools.local_deploy.cable import connected
from devtools.local_deploy.deployment import Cloud, Deployment, wait_for

PATH = "/v1/stream/deployed/orders"
JOBS = ("CompactHistory", "ExportHistory", "Sweep", "Audit")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("deploy")
    with Cloud(tmp_path_factory.mktemp("ministack")) as ministack:
        deployed = Deployment(ministack, directory)
        deployed.bootstrap()
        deployed.deploy()
        yield deployed


def test_every_stack_is_complete(deployment: Deployment) -> None:
    stacks = deployment.stacks()
    assert {"tailrace-dev", "tailrace-dev-storage"} <= stacks.keys()
    assert set(stacks.values()) == {"CREATE_COMPLETE"}


def test_a_stream_is_created_appended_to_and_read(deployment: Deployment) -> None:
    secret = deployment.secret()
    assert deployment.request("PUT", PATH, secret).status_code == 201
    assert deployment.request("POST", PATH, secret, "one").status_code == 204
    assert deployment.request("POST", PATH, secret, "two").status_code == 204
    read = deployment.request("GET", f"{PATH}?offset=-1", secret)
    assert (read.status_code, read.text) == (200, "onetwo")
    assert read.headers["cache-tag"].startswith("s-")


def test_a_large_body_goes_through_the_bucket(deployment: Deployment) -> None:
    secret, body = deployment.secret(), "x" * 700_000
    assert deployment.request("PUT", f"{PATH}/large", secret, body).status_code == 201
    assert deployment.request("GET", f"{PATH}/large?offset=-1", secret).text == body
    stored = deployment.client("s3").list_objects_v2(Bucket=deployment.output("BucketName"))
    assert stored["KeyCount"] == 1


def test_requests_without_the_secret_are_refused(deployment: Deployment) -> None:
    for wrong in ("", "wrong", deployment.output("OriginSecretArn")):
        assert deployment.request("GET", PATH, wrong).status_code == 403


def test_the_distribution_sends_the_secret(deployment: Deployment) -> None:
    assert deployment.origin_headers() == {deployment.secret()}


def test_a_deletion_goes_through_the_tables_stream_to_a_purge(deployment: Deployment) -> None:
    secret, path = deployment.secret(), f"{PATH}/deleted"
    deployment.request("PUT", path, secret, "gone soon")
    tag = deployment.request("GET", f"{path}?offset=-1", secret).headers["cache-tag"]
    assert f"#{tag}" not in deployment.invalidated()
    assert deployment.request("DELETE", path, secret).status_code == 204
    wait_for(lambda: f"#{tag}" in deployment.invalidated())


def test_websockets_without_the_secret_are_refused(deployment: Deployment) -> None:
    for wrong in ("", "wrong"):
        with pytest.raises(InvalidStatus, match="403"), connected(deployment, wrong):
            pass


def test_a_websocket_gets_new_messages_until_it_closes(deployment: Deployment) -> None:
    secret, stream = deployment.secret(), "deployed/chat"
    with connected(deployment, secret) as cable:
        cable.subscribe(stream)
        assert deployment.broadcast(stream, {"text": "hello"}, secret).status_code == 201
        assert cable.message() == {"text": "hello"}
        appended = deployment.request(
            "POST", f"/v1/stream/{stream}", secret, '{"text": "appended"}', "application/json"
        )
        assert appended.status_code == 204
        assert cable.message() == {"text": "appended"}
        cable.ping()
        listener, heartbeat = sorted(deployment.on_cables())
        assert listener.startswith(f"L{stream} {cable.sid} ")
        assert heartbeat == "X heartbeat"
    # The heartbeat, too, ends by itself: ministack would let it run for five minutes.
    wait_for(lambda: not deployment.on_cables())


def test_a_rotation_reaches_the_distribution_and_the_functions(deployment: Deployment) -> None:
    before, path = deployment.secret(), f"{PATH}/rotated"
    assert deployment.request("PUT", path, before).status_code == 201
    deployment.rotate()
    after = deployment.secret()
    assert after != before
    assert deployment.origin_headers() == {after}
    for secret in (after, before):
        assert deployment.request("GET", path, secret).status_code == 200


def test_every_job_has_its_code_where_it_says(deployment: Deployment) -> None:
    glue, s3 = deployment.client("glue"), deployment.client("s3")
    for title in JOBS:
        job = glue.get_job(JobName=deployment.output(f"{title}JobName"))["Job"]
        wheels = job["DefaultArguments"]["--additional-python-modules"]
        assert wheels.endswith(".gluewheels.zip")
        for url in (job["Command"]["ScriptLocation"], wheels):
            bucket, _, key = url.removeprefix("s3://").partition("/")
            assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] > 0
        assert job["DefaultArguments"]["--table"] == deployment.output("TableName")
        assert job["DefaultArguments"]["--bucket"] == deployment.output("BucketName")


def test_jobs_run_by_a_schedule_and_the_export_has_its_database(deployment: Deployment) -> None:
    glue = deployment.client("glue")
    trigger = glue.get_trigger(Name=deployment.output("CompactHistoryJobName"))["Trigger"]
    assert trigger["Actions"] == [{"JobName": deployment.output("CompactHistoryJobName")}]
    assert trigger["Schedule"].startswith("cron(")
    assert glue.get_database(Name=deployment.output("DatabaseName"))


def test_a_second_deployment_changes_nothing(deployment: Deployment) -> None:
    said = deployment.deploy()
    stacks = [stack for stack in deployment.stacks() if stack.startswith("tailrace-")]
    assert [stack for stack in stacks if f"{stack} (no changes)" not in said] == []


def test_nothing_is_left_after_destroying_it(deployment: Deployment) -> None:
    deployment.destroy()
    assert deployment.stacks().keys() == {"CDKToolkit"}
    assert deployment.client("dynamodb").list_tables()["TableNames"] == []
    assert deployment.client("lambda").list_functions()["Functions"] == []
    assert deployment.client("glue").get_jobs()["Jobs"] == []
