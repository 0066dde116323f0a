"""KEDA's scalers poll the triggers of manifests, without Kubernetes.

``autoscaler`` builds KEDA's own code. The build takes minutes, so it runs only with ``LMQ_DEPLOY_TOOLS=build``
(``make deploy-check``); the program is kept. It has the scalers that the manifests use. KEDA has about seventy more in the
same package; without their files, which stay out of the build, their libraries need neither be downloaded nor compiled.

``poll_as_documented`` needs no build: it does what KEDA's documentation says of the scaler ``metrics-api``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .tools import BUILD_S, builds_everything, kept, run

__all__ = ["Polled", "Trigger", "autoscaler", "poll", "poll_as_documented"]

SOURCES = Path(__file__).parent / "keda"
MODULE = "github.com/kedacore/keda/v2"
NEEDED = ("apis", "pkg", "version")
SCALERS = {"scaler.go", "metrics_api_scaler.go", "prometheus_scaler.go", "azure_queue_scaler.go"}
"""The files of KEDA's package of scalers that are built; the last one defines a constant that all scalers use."""
TIMEOUT_S = 30.0
STRICT = {"KEDA_CHECK_UNEXPECTED_SCALERS_PARAMS": "enabled"}


@dataclass(frozen=True)
class Trigger:
    """The outcome of one trigger: a value, or an error."""

    name: str
    value: float | None
    active: bool
    target: str
    error: str


@dataclass(frozen=True)
class Polled:
    """The outcome of a ScaledObject.

    Attributes:
        value: the value of the formula; None without a formula or if a trigger failed.
        active: True if KEDA starts consumers, or keeps them when they would scale to zero.
    """

    name: str
    triggers: tuple[Trigger, ...]
    value: float | None
    active: bool


def autoscaler() -> Path | None:
    """Return the program: as built before, else built now if requested."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:16]
    program = kept(f"keda@{digest}")
    if not program.exists() and builds_everything():
        _build(program)
    return program if program.exists() else None


def _build(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        for path in SOURCES.iterdir():
            shutil.copyfile(path, folder / path.name)
        module = json.loads(_go("mod", "download", "-json", MODULE, folder=folder))
        _copy(Path(module["Dir"]), folder / "keda")
        # The checksums of all that KEDA requires; the checksum of KEDA itself has been verified above.
        shutil.copyfile(folder / "keda" / "go.sum", folder / "go.sum")
        _go("mod", "edit", f"-replace={MODULE}=./keda", folder=folder)
        _go("build", "-mod=mod", "-buildvcs=false", "-o", "program", ".", folder=folder)
        (folder / "program").replace(target)


def _copy(module: Path, target: Path) -> None:
    """Copy the needed files. Those of Go's cache are read-only, and so would be copied folders."""
    scalers = module / "pkg" / "scalers"
    files = [module / "go.mod", module / "go.sum"]
    for part in NEEDED:
        files += [path for path in (module / part).rglob("*") if path.is_file()]
    for path in files:
        if path.parent == scalers and path.name not in SCALERS:
            continue
        copied = target / path.relative_to(module)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)


def _go(*arguments: str, folder: Path) -> str:
    done = run("go", *arguments, environment={"GOFLAGS": "", "GOWORK": "off"}, timeout_s=BUILD_S, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def poll(program: Path, manifests: str) -> list[Polled]:
    """Poll every ScaledObject of the manifests once.

    Raises:
        ValueError: KEDA does not accept the manifests.
    """
    done = run(program, environment=STRICT, text=manifests)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return [_polled(json.loads(line)) for line in done.stdout.splitlines()]


def _polled(found: dict[str, Any]) -> Polled:
    triggers = tuple(Trigger(**trigger) for trigger in found.pop("triggers"))
    return Polled(triggers=triggers, **found)


def poll_as_documented(manifests: str) -> list[Polled]:
    """Poll every ScaledObject of the manifests once: triggers of the type metrics-api with a bearer token."""
    loaded = [one for one in yaml.safe_load_all(manifests) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in loaded}
    return [_poll(one, by_name) for one in loaded if one["kind"] == "ScaledObject"]


def _poll(scaled: dict[str, Any], by_name: dict[tuple[str, str], Any]) -> Polled:
    triggers = []
    for trigger in scaled["spec"]["triggers"]:
        assert (trigger["type"], trigger["metadata"]["authMode"]) == ("metrics-api", "bearer")
        authentication = by_name["TriggerAuthentication", trigger["authenticationRef"]["name"]]
        (reference,) = authentication["spec"]["secretTargetRef"]
        assert reference["parameter"] == "token"
        token = base64.b64decode(by_name["Secret", reference["name"]]["data"][reference["key"]]).decode()
        triggers.append(_read(trigger.get("name", ""), trigger["metadata"], token))
    name = scaled["metadata"]["name"]
    modifiers = scaled["spec"].get("advanced", {}).get("scalingModifiers")
    if modifiers is None:
        return Polled(name, tuple(triggers), None, any(trigger.active for trigger in triggers))
    values = {trigger.name: trigger.value for trigger in triggers if trigger.value is not None}
    if len(values) < len(triggers):
        return Polled(name, tuple(triggers), None, active=False)
    value = sum(values[term] for term in modifiers["formula"].split(" + "))
    return Polled(name, tuple(triggers), value, value > float(modifiers["activationTarget"]))


def _read(name: str, metadata: dict[str, str], token: str) -> Trigger:
    """Read a value: the status must be 200, and the member of the JSON object a number."""
    target = metadata["targetValue"]
    request = urllib.request.Request(metadata["url"], headers={"Authorization": f"Bearer {token}"})
    # The nodes are on this machine: the request bypasses proxies of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            assert answer.status == 200
            value = json.load(answer)[metadata["valueLocation"]]
    except urllib.error.HTTPError as exc:
        with exc:
            return Trigger(name, None, active=False, target=target, error=f"api returned {exc.code}")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return Trigger(name, None, active=False, target=target, error=f"not a number: {value}")
    active = value > float(metadata.get("activationTargetValue", "0"))
    return Trigger(name, float(value), active=active, target=target, error="")
