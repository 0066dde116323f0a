"""The image and the Compose file, checked as far as possible without a Docker daemon."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.node.config.config import OPTIONS
from tests.promtool import run as promtool

from .tools import DEPLOY, ROOT, compose_config, run

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
COMPOSE_FILE = DEPLOY / "compose.yaml"
NODES = {"n1", "n2", "n3"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The Compose file in full, as Compose reads it."""
    *words, last = compose_config()
    # Docker Compose takes the file before its command, the loader after its options.
    if last == "--file":
        place = words.index("config")
        words = [*words[:place], "--file", str(COMPOSE_FILE), *words[place:]]
    else:
        words = [*words, last, str(COMPOSE_FILE)]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def test_hadolint_finds_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = run(program if program.exists() else shutil.which("hadolint") or "hadolint", DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_files_that_the_image_copies_are_sent_to_the_daemon() -> None:
    sent = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    copied: set[str] = set()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE):
        copied |= set(sources.split())
    assert copied == sent
    assert all((ROOT / name).exists() for name in sent)


def test_the_image_installs_the_dependencies_of_the_project(tmp_path: Path) -> None:
    (program,) = re.findall(r'^RUN python -c "(.+)" > requirements.txt', DOCKERFILE.read_text(), re.MULTILINE)
    # The text that a shell leaves between double quotes.
    program = program.replace("pyproject.toml", str(ROOT / "pyproject.toml"))
    done = run("/bin/sh", "-ec", f'{sys.executable} -c "{program}"')
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert done.stdout.splitlines() == project["dependencies"] + project["optional-dependencies"]["thrift"]


def test_every_variable_is_an_option_of_a_node(project: dict[str, Any]) -> None:
    known = {option.environment for option in OPTIONS}
    assert set(re.findall(r"\b(LMQ_\w+)=", DOCKERFILE.read_text(encoding="utf-8"))) <= known
    for name in NODES:
        assert set(project["services"][name]["environment"]) <= known


def test_nodes_are_confined_and_nothing_is_published_beyond_this_machine(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {port["host_ip"] for port in service.get("ports", [])} <= {"127.0.0.1"}, name
    for name in NODES:
        assert project["services"][name]["read_only"]
        assert all(port["target"] != 19980 for port in project["services"][name]["ports"])


def test_without_a_profile_there_are_three_nodes_and_their_secrets(project: dict[str, Any]) -> None:
    plain = {name for name, service in project["services"].items() if not service.get("profiles")}
    assert plain == {*NODES, "secrets"}
    profiles = {profile for service in project["services"].values() for profile in service.get("profiles", [])}
    assert profiles == {"monitoring", "chaos"}
    for name in NODES:
        needed = project["services"][name]["depends_on"]["secrets"]
        assert needed["condition"] == "service_completed_successfully"


def test_the_secrets_are_generated_once(project: dict[str, Any], tmp_path: Path) -> None:
    (script,) = project["services"]["secrets"]["command"]
    # Compose shows a dollar sign in its escaped form.
    script = script.replace("$$", "$").replace("/etc/lmq/", f"{tmp_path}/").replace("python ", f"{sys.executable} ")
    assert run("/bin/sh", "-ec", script).returncode == 0
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(drawn) == {"cluster-secret", "admin-token"}
    assert drawn["admin-token"].startswith("lmq_")
    assert all(len(secret.strip()) >= 43 for secret in drawn.values())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert run("/bin/sh", "-ec", script).returncode == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == drawn


def test_files_that_services_mount_exist(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        for volume in service.get("volumes", []):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), f"{name}: {volume['source']}"


def test_prometheus_accepts_its_configuration(project: dict[str, Any], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("lmq_of-no-value")
    text = (DEPLOY / "docker" / "prometheus.yml").read_text(encoding="utf-8")
    named = "/etc/lmq-metrics/token"
    assert named in text
    assert any(volume["target"] == "/etc/lmq-metrics" for volume in project["services"]["prometheus"]["volumes"])
    (tmp_path / "prometheus.yml").write_text(text.replace(named, str(token)))
    (tmp_path / "rules").symlink_to(DEPLOY / "monitoring" / "rules")
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_through_toxiproxy_the_nodes_find_each_other(project: dict[str, Any]) -> None:
    lines = (DEPLOY / "docker" / "chaos.env").read_text(encoding="utf-8").splitlines()
    chosen = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    proxies = json.loads((DEPLOY / "docker" / "toxiproxy.json").read_text(encoding="utf-8"))
    assert [proxy["upstream"] for proxy in proxies] == [f"{name}:19980" for name in sorted(NODES)]
    through = [f"toxiproxy:{proxy['listen'].rpartition(':')[2]}" for proxy in proxies]
    assert chosen["LMQ_PEERS"].split(",") == through
    assert [chosen[f"{name.upper()}_RAFT"] for name in sorted(NODES)] == through
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    assert all("${" + name in text for name in chosen)
