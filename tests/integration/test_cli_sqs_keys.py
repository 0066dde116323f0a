"""``lmq-admin token create --sqs``: its output is a part of the file from which AWS's clients read their keys."""

from __future__ import annotations

import configparser
from pathlib import Path

from lmqcluster.node.access.sqs_keys import secret_access_key, sqs_key

from .cluster import Cluster
from .programs import run_here


def test_the_output_can_be_appended_to_the_file_of_credentials(tmp_path: Path) -> None:
    with Cluster(1, directory=tmp_path) as cluster:
        node = cluster[0].http
        root = run_here("--node", node, "token", "create", "root", "--role", "admin").out.strip()
        known = {"LMQ_TOKEN": root}
        outputs = [
            run_here("--node", node, "token", "create", name, "--role", "write", "--sqs", environment=known).out
            for name in ("shop", "billing@2")
        ]
        listed = run_here("--node", node, "token", "list", "--json", environment=known).out
    file = configparser.RawConfigParser()
    file.read_string("".join(outputs))
    assert file.sections() == ["shop", "billing@2"]
    for name, output in zip(file.sections(), outputs, strict=True):
        secret = output.splitlines()[0].split()[-1]
        key = secret_access_key(sqs_key(secret.encode()))
        assert dict(file[name]) == {"aws_access_key_id": name, "aws_secret_access_key": key}
        assert output.splitlines()[1] == f"# Environment: AWS_ACCESS_KEY_ID={name} AWS_SECRET_ACCESS_KEY={key}"
        assert key not in listed
