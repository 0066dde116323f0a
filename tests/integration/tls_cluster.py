"""Three nodes with TLS, an administrator's token, and a key of the SQS port."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cluster import Cluster
from .programs import run

__all__ = ["TLS_KEY", "tls_cluster"]

TLS_KEY = "drill"
"""The access key id, which is the name of its token."""
SECRET = "a token of this cluster"


@contextmanager
def tls_cluster(folder: Path) -> Iterator[tuple[Cluster, str, str]]:
    """Run the nodes; yield them, the secret access key, and the path of the authority's certificate."""
    certificates, token = folder / "tls", folder / "token"
    done = run("lmq-admin", "tls", "init", "n1", "--dir", str(certificates))
    assert done.code == 0, done.err
    token.write_text(SECRET + "\n", encoding="utf-8")
    ca = str(certificates / "ca.crt")
    options = {"tls-cert": certificates / "n1.crt", "tls-key": certificates / "n1.key", "admin-token-file": token}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    raft = {"LMQ_CLUSTER_SECRET": "the secret of three nodes"}
    cluster = Cluster(3, directory=folder, arguments=arguments, environment=raft)
    context = ssl.create_default_context(cafile=ca)
    for node in cluster:
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        node.opener = urllib.request.build_opener(*handlers)
        node.opener.addheaders = [("Authorization", f"Bearer {SECRET}")]
        node.scheme = "https"
    with cluster:
        environment = {"LMQ_NODE": cluster[0].http, "LMQ_CA_FILE": ca, "LMQ_TOKEN": SECRET}
        words = ("token", "create", TLS_KEY, "--role", "admin", "--sqs", "--json")
        made = run("lmq-admin", *words, environment=environment)
        assert made.code == 0, made.err
        yield cluster, json.loads(made.out)["secret_access_key"], ca
