"""The Helm chart: Kubernetes accepts its output, which has everything that a cluster of nodes needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import kubernetes_validate
import pytest
import yaml

from lmqcluster.node.config.config import OPTIONS
from tests import promtool

from .rendering import CHART, KUBERNETES, VARIANTS, kept, rendered, stamp
from .tools import DEPLOY, helm, run

KUBERNETES_VERSIONS = ("1.27", "1.31", "1.34", "1.37")
NOT_IN_KUBERNETES = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}


def documents(variant: str) -> dict[tuple[str, str], Any]:
    """Return the objects of a variant by kind and name."""
    loaded = [one for one in yaml.safe_load_all(kept(variant).read_text(encoding="utf-8")) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in loaded}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_kept_files_were_rendered_from_this_chart(variant: str) -> None:
    assert stamp() in kept(variant).read_text(encoding="utf-8"), (
        "the chart has changed: run .venv/bin/python -m tests.deploy.rendering"
    )


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_knows_every_field(variant: str, version: str) -> None:
    for (kind, name), one in documents(variant).items():
        if kind in NOT_IN_KUBERNETES:
            continue
        kubernetes_validate.validate(one, version, strict=True)
        assert len(name) <= 63


def test_an_unknown_field_is_detected() -> None:
    one = documents("default")["StatefulSet", "lmq-lmqcluster"]
    one["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(one, "1.31", strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variable_is_an_option_of_a_node(variant: str) -> None:
    known = {option.environment for option in OPTIONS}
    (container,) = documents(variant)["StatefulSet", "lmq-lmqcluster"]["spec"]["template"]["spec"]["containers"]
    given = {one["name"] for one in container["env"]}
    assert given <= known
    exported = set(re.findall(r"export (LMQ_\w+)=", container["args"][0]))
    assert exported == {"LMQ_PEERS", "LMQ_AWAIT_JOIN"}
    assert exported <= known


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pod_has_no_rights_and_one_disk(variant: str) -> None:
    pod = documents(variant)["StatefulSet", "lmq-lmqcluster"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # SIGTERM follows preStop, and a node takes up to 10 s from then on.
    assert pod["terminationGracePeriodSeconds"] >= int(container["lifecycle"]["preStop"]["exec"]["command"][1]) + 20
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_port_of_the_peers_is_for_peers() -> None:
    objects = documents("default")
    policy = objects["NetworkPolicy", "lmq-lmqcluster"]["spec"]
    own = objects["StatefulSet", "lmq-lmqcluster"]["spec"]["selector"]
    for rule in policy["ingress"]:
        if any(port["port"] == "raft" for port in rule["ports"]):
            assert rule["from"] == [{"podSelector": own}]
    clients = objects["Service", "lmq-lmqcluster"]["spec"]
    assert {port["name"] for port in clients["ports"]} == {"http", "rpc"}


def test_prometheus_reads_every_page_that_alerts_and_dashboard_need() -> None:
    """The nodes are under the job that the rules count, single queues under another."""
    monitor = documents("everything")["ServiceMonitor", "lmq-lmqcluster"]
    service = documents("everything")["Service", "lmq-lmqcluster"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service.items()
    jobs = {}
    for endpoint in monitor["spec"]["endpoints"]:
        relabeled = {one["targetLabel"]: one["replacement"] for one in endpoint["relabelings"]}
        assert relabeled["cluster"] == "lmq-lmqcluster"
        assert (endpoint["port"], endpoint["scheme"]) == ("http", "https")
        assert endpoint["authorization"]["credentials"] == {"name": "mine", "key": "admin-token"}
        assert endpoint["tlsConfig"]["serverName"] == "lmq-lmqcluster.queues.svc"
        jobs[endpoint["path"]] = relabeled.get("job", service[monitor["spec"]["jobLabel"]])
    assert jobs == {"/metrics": "lmqcluster", "/metrics/queues": "lmqcluster-queues"}
    configured = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text(encoding="utf-8"))
    assert jobs == {one.get("metrics_path", "/metrics"): one["job_name"] for one in configured["scrape_configs"]}


def test_consumers_are_scaled_on_their_queues() -> None:
    """Both triggers read the queue of the Deployment, with the token of the Secret."""
    objects = documents("everything")
    (reference,) = objects["TriggerAuthentication", "lmq-lmqcluster"]["spec"]["secretTargetRef"]
    assert reference == {"parameter": "token", "name": "mine", "key": "admin-token"}
    scaled = {name: one["spec"] for (kind, name), one in objects.items() if kind == "ScaledObject"}
    names = {"invoices": ("invoices", "10", 0, 10), "thumbnails": ("images/new & urgent", "1", 1, 30)}
    assert scaled.keys() == names.keys()
    for deployment, (queue, target, least, most) in names.items():
        spec = scaled[deployment]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (least, most)
        assert spec["scaleTargetRef"] == {"name": deployment}
        modifiers = spec["advanced"]["scalingModifiers"]
        assert modifiers == {"formula": "ready + leased", "target": target, "activationTarget": "0"}
        for trigger, figure in zip(spec["triggers"], ("ready", "leased"), strict=True):
            assert trigger["authenticationRef"] == {"name": "lmq-lmqcluster"}
            assert trigger["name"] == trigger["metadata"]["valueLocation"] == figure
            url = urlsplit(trigger["metadata"]["url"])
            assert (url.scheme, url.netloc) == ("https", "lmq-lmqcluster.queues.svc:9980")
            assert unquote_plus(url.path.removeprefix("/v1/queues/")) == queue


def test_the_alerts_come_with_the_chart(tmp_path: Path) -> None:
    rule = documents("everything")["PrometheusRule", "lmq-lmqcluster"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    rules = (DEPLOY / "monitoring" / "rules" / "lmqcluster.yml").read_text(encoding="utf-8")
    page = "https://intranet.example.org/lmq/alerts.html"
    assert rule["spec"] == yaml.safe_load(rules.replace('"docs/alerts.md#', f'"{page}#'))
    assert f"{page}#lmqmemberdown" in json.dumps(rule["spec"])
    # JSON is YAML.
    (tmp_path / "rules.yml").write_text(json.dumps(rule["spec"]), encoding="utf-8")
    promtool.run("check", "rules", tmp_path / "rules.yml")
    assert not any(kind in NOT_IN_KUBERNETES for kind, _name in documents("default"))


def test_pages_of_the_documentation_that_the_chart_names_exist() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in CHART.rglob("*") if path.is_file())
    pages = set(re.findall(r"\bdocs/[\w.-]+\.md", text))
    assert pages
    assert all((DEPLOY.parent / page).is_file() for page in pages), pages


def test_founding_members_get_the_same_peers_and_later_ones_wait_for_their_join() -> None:
    (container,) = documents("everything")["StatefulSet", "lmq-lmqcluster"]["spec"]["template"]["spec"]["containers"]
    script = container["args"][0].replace("exec lmq start", 'echo "peers $LMQ_PEERS, await_join $LMQ_AWAIT_JOIN"')
    said = []
    for number in range(5):
        environment = {"LMQ_NAME": f"lmq-lmqcluster-{number}", "LMQ_PEERS": "", "LMQ_AWAIT_JOIN": ""}
        said.append(run("/bin/sh", "-ec", script, environment=environment).stdout)
    peers = ",".join(f"lmq-lmqcluster-{n}.lmq-lmqcluster-nodes.queues.svc.cluster.local:19980" for n in range(3))
    assert said == [f"peers {peers}, await_join \n"] * 3 + ["peers , await_join on\n"] * 2


def test_helm_finds_no_error_and_renders_the_kept_files() -> None:
    program = helm()
    if program is None:
        pytest.skip("Helm is not installed; make deploy-check builds it")
    done = run(program, "lint", "--strict", "--kube-version", KUBERNETES, CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    for variant in VARIANTS:
        assert rendered(program, variant) == kept(variant).read_text(encoding="utf-8")
    template = (program, "template", "lmq", CHART, "--kube-version", KUBERNETES)
    for value, problem in (
        ("tls.enabled=true", "tls.secretName"),
        ("autoscaling.enabled=true", "autoscaling.consumers"),
    ):
        assert problem in run(*template, f"--set={value}").stderr
