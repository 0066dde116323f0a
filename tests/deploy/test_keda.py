"""The manifests for KEDA: they refer to each other, and KEDA's scalers read the figures of real nodes with them.

Every reading is taken twice: as KEDA's documentation describes it, and by KEDA's own code, if that has been built.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests import promtool
from tests.docs.shell import steps
from tests.integration import programs
from tests.integration.cluster import Cluster, NodeProcess, ports, reaper, wait_for
from tests.integration.raw_http import Answer, call

from .autoscaler import Polled, autoscaler, poll, poll_as_documented
from .rendering import CHART, KUBERNETES, kept
from .test_helm import KUBERNETES_VERSIONS
from .tools import DEPLOY, ROOT, helm, run

KEDA = DEPLOY / "keda"
PAGE = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(step.command.replace("\\\n", " ")) for step in steps(PAGE)]
SERVICE = "lmq-lmqcluster.queues.svc:9980"
PROMETHEUS = "prometheus.monitoring.svc:9090"
ADMIN = "lmq_a-token-for-tests-only-of-no-value"
ENVIRONMENT = {"LMQ_CLUSTER_SECRET": "the secret of three nodes"}
SPECIAL = "images/new & urgent"
PARAMETERS = {
    "metrics-api": {"url", "valueLocation", "targetValue", "activationTargetValue", "authMode"},
    "prometheus": {"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues"},
}
"""The parameters of KEDA 2.12 and newer that the manifests may use."""

Read = Callable[[str], list[Polled]]


def text_of(name: str) -> str:
    return (KEDA / name).read_text(encoding="utf-8")


def documents(text: str) -> list[Any]:
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(kind: str, text: str) -> list[Any]:
    return [one for one in documents(text) if one["kind"] == kind]


FILES = sorted(path.name for path in KEDA.iterdir())
OVER_HTTP = [name for name in FILES if "metrics-api" in text_of(name)]


def blocks() -> list[str]:
    """Return the YAML of the page."""
    return re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


# The manifests and the page by themselves.


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_knows_every_field_of_the_consumer(version: str) -> None:
    (deployment,) = of_kind("Deployment", text_of("consumer.yaml"))
    kubernetes_validate.validate(deployment, version, strict=True)
    # With a number, every `kubectl apply` would undo KEDA's.
    assert "replicas" not in deployment["spec"]
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 30


@pytest.mark.parametrize("name", [name for name in FILES if name != "consumer.yaml"])
def test_scaled_objects_use_documented_parameters_and_existing_objects(name: str) -> None:
    (deployment,) = of_kind("Deployment", text_of("consumer.yaml"))
    authentications = {one["metadata"]["name"] for one in of_kind("TriggerAuthentication", text_of("http.yaml"))}
    (scaled,) = of_kind("ScaledObject", text_of(name))
    assert scaled["metadata"]["name"] == scaled["spec"]["scaleTargetRef"]["name"]
    assert scaled["metadata"]["name"] in {deployment["metadata"]["name"], "thumbnails"}
    for trigger in scaled["spec"]["triggers"]:
        assert trigger["metadata"].keys() <= PARAMETERS[trigger["type"]]
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        if trigger["type"] == "metrics-api":
            assert trigger["authenticationRef"]["name"] in authentications


def test_the_page_shows_the_manifests_and_links_all() -> None:
    *shown, values = blocks()
    assert len(shown) == 3
    for block in shown:
        assert any(block in text_of(name) for name in FILES), block
    assert set(re.findall(r"\]\(\.\./deploy/keda/([^)]+)\)", PAGE)) == set(FILES)
    assert list(yaml.safe_load(values)) == ["autoscaling"]


def test_the_commands_of_the_page_create_what_the_manifests_need() -> None:
    (creation,) = [words for words in COMMANDS if words[3:6] == ["create", "secret", "generic"]]
    (authentication,) = of_kind("TriggerAuthentication", text_of("http.yaml"))
    (reference,) = authentication["spec"]["secretTargetRef"]
    key, _, value = creation[7].removeprefix("--from-literal=").partition("=")
    assert (creation[6], key) == (reference["name"], reference["key"])
    assert value == "$(cat keda.token)"
    assert token_command()[-2:] == [">", "keda.token"]
    applied = [words[-1] for words in COMMANDS if words[3:5] == ["apply", "--filename"]]
    assert applied == ["deploy/keda/http.yaml", "deploy/keda/prometheus.yaml"]
    assert all((ROOT / name).is_file() for name in applied)
    (shown,) = [words[-1] for words in COMMANDS if words[3:5] == ["get", "scaledobject"]]
    assert shown == of_kind("ScaledObject", text_of("http.yaml"))[0]["metadata"]["name"]


def test_the_chart_accepts_the_values_of_the_page(tmp_path: Path) -> None:
    values = blocks()[-1]
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(values), schema)
    program = helm()
    if program is None:
        return
    (upgrade,) = [words for words in COMMANDS if words[0] == "helm"]
    assert upgrade[-2:] == ["--values", "autoscaling.yaml"]
    (tmp_path / "autoscaling.yaml").write_text(values)
    place = ("--namespace", "queues", "--kube-version", KUBERNETES)
    template = run(program, "template", upgrade[2], CHART, *place, *upgrade[-2:], folder=tmp_path)
    rendered = [one["metadata"]["name"] for one in of_kind("ScaledObject", template.stdout)]
    assert rendered == ["invoices", "thumbnails"], template.stderr


@pytest.mark.parametrize(
    "change",
    [{"messagesPerReplica": 0}, {"minReplicas": -1}, {"replicas": 3}, {"deployment": ""}],
    ids=lambda change: next(iter(change)),
)
def test_the_chart_refuses_wrong_consumers(change: dict[str, Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    consumer = {"deployment": "invoices", "messagesPerReplica": 10, **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"autoscaling": {"enabled": True, "consumers": [consumer]}}, schema)


# The figures of real nodes.


class Guarded(NamedTuple):
    """A node that demands tokens, and the token that the page creates for KEDA."""

    node: NodeProcess
    token: str

    def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send a request of the administrator."""
        return call(self.node.http, method, path, body, {"authorization": f"Bearer {ADMIN}"})

    def push(self, queue: str, count: int = 1, options: str = "") -> None:
        for _ in range(count):
            assert self.ask("POST", f"/messages/{quote(queue, safe='')}{options}", b"pay").status == 200

    def pull(self, queue: str) -> str:
        """Pull a message; return the path of its answers."""
        answer = self.ask("GET", f"/messages/{quote(queue, safe='')}?t=60")
        assert answer.status == 200
        return f"/messages/{quote(queue, safe='')}/{answer['x-lmq-message-id'].decode()}"

    def manifests(self, text: str, token: str | None = None) -> str:
        """Return manifests for this node, with the Secrets that they refer to."""
        for scheme in ("http", "https"):
            text = text.replace(f"{scheme}://{SERVICE}", f"http://{self.node.http}")
        data = base64.b64encode((token or self.token).encode()).decode()
        secrets = []
        for authentication in of_kind("TriggerAuthentication", text):
            (reference,) = authentication["spec"]["secretTargetRef"]
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": reference["name"]}}
            secrets.append(yaml.safe_dump({**secret, "data": {reference["key"]: data}}))
        return "\n---\n".join([*secrets, text])


def token_command() -> list[str]:
    """Return the words of the page's command that creates a token, from the program on."""
    (words,) = [words for words in COMMANDS if "token" in words and words[0] == "kubectl"]
    return words[words.index("--") + 1 :]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    admin = folder / "admin-token"
    admin.write_text(ADMIN)
    with NodeProcess(folder, arguments=("--admin-token-file", str(admin)), environment=ENVIRONMENT) as node:
        program, *words = token_command()[:-2]
        created = programs.run(
            program, "--node", node.http, *(word.replace("/etc/lmq/secrets", str(folder)) for word in words)
        )
        assert created.code == 0, created.err
        yield Guarded(node, created.out.strip())


@pytest.fixture(params=["documented", "KEDA"])
def read(request: pytest.FixtureRequest) -> Read:
    """A function that polls the ScaledObjects of manifests once."""
    if request.param == "documented":
        return poll_as_documented
    program = keda_program()
    return lambda manifests: poll(program, manifests)


@pytest.fixture
def with_keda() -> Read:
    """KEDA's own code, for what only it shows."""
    program = keda_program()
    return lambda manifests: poll(program, manifests)


def keda_program() -> Path:
    program = autoscaler()
    if program is None:
        pytest.skip("KEDA has not been built; make deploy-check builds it")
    return program


@pytest.fixture
def empty(guarded: Guarded) -> Iterator[Guarded]:
    """The node without the queues of the manifests."""
    yield guarded
    for queue in ("invoices", "thumbnails", SPECIAL):
        guarded.ask("DELETE", f"/v1/queues/{quote(queue, safe='')}")


def values(polled: Polled) -> dict[str, float | None]:
    """Return the values of the triggers by name."""
    return {trigger.name: trigger.value for trigger in polled.triggers}


def errors(polled: Polled, pattern: str) -> bool:
    """Return whether all triggers failed with errors that match, so that KEDA keeps the replicas."""
    return not polled.active and all(re.search(pattern, trigger.error) for trigger in polled.triggers)


def test_keda_reads_ready_and_leased_messages(empty: Guarded, read: Read) -> None:
    manifests = empty.manifests(text_of("http.yaml"))
    empty.push("invoices", 3)
    (polled,) = read(manifests)
    assert values(polled) == {"ready": 3, "leased": 0}
    assert (polled.name, polled.value, polled.active) == ("invoices", 3, True)

    delivery = empty.pull("invoices")
    (polled,) = read(manifests)
    assert values(polled) == {"ready": 2, "leased": 1}
    assert polled.value == 3

    for _ in range(2):
        assert empty.ask("POST", f"{empty.pull('invoices')}?reply=ack").status == 204
    (polled,) = read(manifests)
    assert (values(polled), polled.active) == ({"ready": 0, "leased": 1}, True), "its consumer is at work"

    assert empty.ask("POST", f"{delivery}?reply=ack").status == 204
    (polled,) = read(manifests)
    assert (values(polled), polled.value, polled.active) == ({"ready": 0, "leased": 0}, 0, False)


def test_keda_reads_a_queue_with_special_characters(empty: Guarded, read: Read) -> None:
    authentication = text_of("http.yaml").partition("---\n")[0]
    manifests = empty.manifests(f"{authentication}---\n{text_of('http-size.yaml')}")
    empty.push(SPECIAL, 12)
    ((trigger,),) = [polled.triggers for polled in read(manifests)]
    assert (trigger.value, trigger.active, trigger.target) == (12, True, "10")


def test_a_scaled_object_starts_above_its_activation_value(empty: Guarded, read: Read) -> None:
    authentication = text_of("http.yaml").partition("---\n")[0]
    manifests = empty.manifests(f"{authentication}---\n{text_of('http-size.yaml')}")
    with_formula = empty.manifests(text_of("http.yaml"))
    for queue in (SPECIAL, "invoices"):
        empty.push(queue, 9)
    for text, key in ((manifests, "activationTargetValue"), (with_formula, "activationTarget")):
        assert f'{key}: "0"' in text
        active = [read(text.replace(f'{key}: "0"', f'{key}: "{least}"'))[0].active for least in (8, 9)]
        assert active == [True, False]


def test_keda_reads_what_the_chart_creates(empty: Guarded, read: Read) -> None:
    created = [one for one in documents(kept("everything").read_text()) if one["apiVersion"].startswith("keda.sh/")]
    manifests = empty.manifests(yaml.safe_dump_all(created))
    empty.push("invoices", 2)
    empty.push(SPECIAL, 1)
    polled = {one.name: (one.value, one.active) for one in read(manifests)}
    assert polled == {"invoices": (2, True), "thumbnails": (1, True)}


def test_keda_gets_an_error_without_a_queue_or_a_permission(empty: Guarded, read: Read) -> None:
    manifests = text_of("http.yaml")
    assert errors(read(empty.manifests(manifests))[0], r"api returned 404\Z")
    empty.push("invoices")
    assert read(empty.manifests(manifests))[0].active
    assert errors(read(empty.manifests(manifests, "lmq_another"))[0], r"api returned 401\Z")
    empty.push("thumbnails")
    other = manifests.replace("/v1/queues/invoices", "/v1/queues/thumbnails")
    assert errors(read(empty.manifests(other))[0], r"api returned 403\Z")
    assert read(empty.manifests(other, ADMIN))[0].active


def test_delayed_messages_count_when_they_are_due(empty: Guarded, read: Read) -> None:
    manifests = empty.manifests(text_of("http.yaml"))
    pushed = {"messages": [{"content": "pay", "delay": 3600}, {"content": "pay", "delay": 0.2}]}
    empty.ask("POST", "/v1/queues/invoices/messages", json.dumps(pushed).encode())
    # Nothing pulls: KEDA has no consumers.
    polled = wait_for(lambda: next((one for one in read(manifests) if one.active), None), "a message that is due")
    assert values(polled) == {"ready": 1, "leased": 0}


def test_the_message_of_a_killed_consumer_counts_until_it_is_redelivered(empty: Guarded, read: Read) -> None:
    manifests = empty.manifests(text_of("http.yaml"))
    assert empty.ask("PATCH", "/v1/queues/invoices/properties", b'{"timeout": 3}').status == 204
    empty.push("invoices")
    empty.pull("invoices")
    seen = []

    def returned() -> bool:
        (polled,) = read(manifests)
        # A lease that ends between the readings of the two triggers shows in neither or both.
        if polled.value == 1:
            seen.append(values(polled))
        return bool(seen) and seen[-1]["ready"] == 1

    wait_for(returned, "the end of the lease")
    assert seen[0] == {"ready": 0, "leased": 1}


@pytest.mark.parametrize("name", OVER_HTTP)
@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        ("pollingInterval: 15", "polingInterval: 15", "unknown field"),
        ("valueLocation:", "valueLocaton:", "missing required parameter"),
        ("authMode: bearer", "authMode: bearer\n        targetValues: '1'", "Unmatched input property targetValues"),
        ("authMode: bearer", "authMode: bear", "must be one of"),
    ],
)
def test_keda_finds_errors_in_manifests(
    guarded: Guarded, with_keda: Read, name: str, right: str, wrong: str, error: str
) -> None:
    authentication = text_of("http.yaml").partition("---\n")[0]
    manifests = guarded.manifests(f"{authentication}---\n{text_of(name)}")
    assert right in manifests
    with pytest.raises(ValueError, match=error):
        with_keda(manifests.replace(right, wrong))


def test_the_age_of_the_oldest_message_is_an_error_in_an_empty_queue(empty: Guarded, with_keda: Read) -> None:
    authentication = text_of("http.yaml").partition("---\n")[0]
    manifests = empty.manifests(f"{authentication}---\n{text_of('http-size.yaml')}")
    manifests = manifests.replace("valueLocation: size", "valueLocation: oldest_age_s")
    empty.push(SPECIAL)
    assert with_keda(manifests)[0].active
    empty.pull(SPECIAL)
    assert errors(with_keda(manifests)[0], "must point to a numeric value.*got Null")


def test_without_a_quorum_the_nodes_leave_the_service_and_keep_the_figures(tmp_path: Path, read: Read) -> None:
    with Cluster(3, directory=tmp_path, environment=ENVIRONMENT) as cluster:
        survivor, *others = cluster
        for _ in range(3):
            assert call(survivor.http, "POST", "/messages/invoices", b"pay").status == 200
        # Without tokens, a node takes any from its own machine.
        manifests = Guarded(survivor, "none").manifests(text_of("http.yaml"))
        assert read(manifests)[0].value == 3
        for other in others:
            other.kill()
        wait_for(lambda: call(survivor.http, "GET", "/readyz").status == 503, "the loss of the quorum")
        assert survivor.get_json("/v1/queues/invoices")["stale"]
        assert (read(manifests)[0].value, read(manifests)[0].active) == (3, True)
        metrics = call(survivor.http, "GET", "/metrics/queues").body.decode()
        assert 'lmq_queue_messages{queue="invoices",state="ready"} 3' in metrics
        survivor.kill()
        with pytest.raises(OSError, match="refused"):
            call(survivor.http, "GET", "/readyz")


# Prometheus.


def query() -> str:
    """Return the query of the manifest."""
    (scaled,) = of_kind("ScaledObject", text_of("prometheus.yaml"))
    (trigger,) = scaled["spec"]["triggers"]
    found: str = trigger["metadata"]["query"]
    return found


def series(instance: str, state: str, values: str, queue: str = "invoices", cluster: str = "lmq-lmqcluster") -> Any:
    labels = f'cluster="{cluster}",instance="{instance}",queue="{queue}",state="{state}"'
    return {"series": f"lmq_queue_messages{{{labels}}}", "values": values}


def test_the_query_is_the_median_of_the_nodes_for_one_queue_of_one_cluster(tmp_path: Path) -> None:
    given = [
        *(series(instance, "ready", "7x10") for instance in ("n1", "n2")),
        *(series(instance, "leased", "2x10") for instance in ("n1", "n2")),
        # This node was restarted, and replays its log.
        series("n3", "ready", "0 900 900 7x7"),
        series("n3", "leased", "0 90 90 2x7"),
        series("n1", "delayed", "50x10"),
        series("n1", "ready", "60x10", queue="invoices2"),
        series("n1", "ready", "70x10", cluster="other"),
    ]
    expected = [
        {"expr": query(), "eval_time": f"{n}m", "exp_samples": [{"labels": "{}", "value": 9}]} for n in (0, 1, 5)
    ]
    gone = {"expr": query(), "eval_time": "30m", "exp_samples": []}
    case = {"interval": "1m", "input_series": given, "promql_expr_test": [*expected, gone]}
    file = tmp_path / "query_test.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"rule_files": [], "tests": [case]}), encoding="utf-8")
    promtool.run("test", "rules", file)


@contextmanager
def running_prometheus(folder: Path, nodes: Sequence[NodeProcess]) -> Iterator[str]:
    """Run Prometheus, which reads the single queues of the nodes as deploy/monitoring does, but more often."""
    configuration = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = [one for one in configuration["scrape_configs"] if one.get("metrics_path") == "/metrics/queues"]
    targets = [{"targets": [node.http for node in nodes], "labels": {"cluster": "lmq-lmqcluster"}}]
    job |= {"static_configs": targets, "scrape_interval": "200ms"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    address = f"127.0.0.1:{ports.take()}"
    command = [promtool.prometheus(), f"--web.listen-address={address}", f"--config.file={folder / 'prometheus.yml'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder / 'data'}"], stdout=log, stderr=log, start_new_session=True
        )
    reaper.tell("+", process.pid)
    try:
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        reaper.tell("-", process.pid)


def test_keda_reads_a_queue_from_prometheus(tmp_path: Path, with_keda: Read) -> None:
    with Cluster(3, directory=tmp_path) as cluster, running_prometheus(tmp_path, cluster.nodes) as address:
        manifests = text_of("prometheus.yaml").replace(PROMETHEUS, address)
        # It does not answer yet, and then has no figures of the queue: KEDA keeps the replicas.
        wait_for(lambda: errors(with_keda(manifests)[0], "the result is empty"), "Prometheus")
        taken_for_empty = manifests.replace('ignoreNullValues: "false"', 'ignoreNullValues: "true"')
        assert with_keda(taken_for_empty)[0].triggers[0].value == 0

        for _ in range(12):
            assert call(cluster[0].http, "POST", "/messages/invoices", b"pay").status == 200
        assert call(cluster[1].http, "GET", "/messages/invoices?t=60").status == 200

        def reads(value: float) -> Callable[[], bool]:
            return lambda: with_keda(manifests)[0].triggers[0].value == value

        wait_for(reads(12), "the figures of the queue")
        (trigger,) = with_keda(manifests)[0].triggers
        assert (trigger.active, trigger.target, math.ceil(12 / float(trigger.target))) == (True, "10", 2)
        cluster[2].kill()
        call(cluster[0].http, "POST", "/messages/invoices", b"pay")
        wait_for(reads(13), "the figures of the other nodes")
