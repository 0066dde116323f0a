"""The Helm chart as Helm renders it, kept beside the tests, so that it can be checked without Helm.

``python -m tests.deploy.rendering`` renders it again; it needs Helm, or Go, which builds it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from .tools import DEPLOY, helm, run

__all__ = ["CHART", "VARIANTS", "kept", "rendered", "stamp"]

CHART = DEPLOY / "helm" / "lmqcluster"
KUBERNETES = "1.31.0"
"""The version that templates get; the result is checked against several."""
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "everything": (
        "--set=tls.enabled=true,tls.secretName=lmq-tls,tls.peers=required,serviceMonitor.enabled=true,replicaCount=5",
        "--set=backup.enabled=true,backup.keep=7,backup.storageClassName=slow",
        "--set=prometheusRule.enabled=true,prometheusRule.labels.release=prometheus",
        "--set=prometheusRule.docsUrl=https://intranet.example.org/lmq",
        "--set=secrets.existingSecret=mine,config.log_level=debug,config.message_bytes_max=1MiB",
        "--set=persistence.storageClassName=fast,priorityClassName=high,podAnnotations.note=yes,podLabels.team=queues",
        '--set-json=networkPolicy.clients=[{"namespaceSelector":{"matchLabels":{"queues":"yes"}}}]',
        '--set-json=tolerations=[{"key":"queues","operator":"Exists"}]',
        '--set-json=imagePullSecrets=[{"name":"registry"}]',
        '--set-json=nodeSelector={"disk":"fast"}',
        (
            '--set-json=autoscaling={"enabled":true,"consumers":[{"deployment":"invoices","messagesPerReplica":10},'
            '{"deployment":"thumbnails","queue":"images/new & urgent","messagesPerReplica":1,"minReplicas":1,"maxReplicas":30}]}'
        ),
    ),
}


def stamp() -> str:
    """Return a checksum of the chart's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(CHART)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def kept(variant: str) -> Path:
    """Return the file of a variant with its last rendering."""
    return Path(__file__).parent / "rendered" / f"{variant}.yaml"


def rendered(program: Path, variant: str) -> str:
    """Return the output of Helm for the chart, with random values replaced."""
    words = [
        program,
        "template",
        "lmq",
        CHART,
        "--namespace",
        "queues",
        "--kube-version",
        KUBERNETES,
        *VARIANTS[variant],
    ]
    done = run(*words)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    body = re.sub(r"^(  (?:cluster-secret|admin-token): ).*$", r"\1ZHJhd24=", done.stdout, flags=re.MULTILINE)
    return f"# Made by: python -m tests.deploy.rendering\n# The chart's checksum: {stamp()}\n{body}"


def main() -> None:
    """Render all variants."""
    os.environ["LMQ_DEPLOY_TOOLS"] = "build"
    program = helm()
    assert program is not None
    for variant in VARIANTS:
        kept(variant).write_text(rendered(program, variant), encoding="utf-8")
        print(kept(variant), file=sys.stderr)


if __name__ == "__main__":
    main()
