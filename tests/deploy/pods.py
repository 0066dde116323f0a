"""The pods of the chart's StatefulSet as processes: each has its own network, address, volume and hosts file."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.integration.cluster import clean_environment, fetch, reaper, wait_for

from .rendering import kept
from .tools import run

__all__ = ["Pod", "Pods", "why_not"]

SCRIPT = Path(__file__).with_name("pod.sh")
STATEFUL_SET = "lmq-lmqcluster"
TOKEN = "lmq_a-token-for-tests-only-of-no-value"
_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Return why there can be no pods here; None if there can."""
    if os.geteuid() != 0:
        return "only root may create networks"
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}: install the Debian packages util-linux and iproute2"
    tried = run("unshare", "--net", "--mount", "ip", "link", "add", "br0", "type", "bridge")
    return None if tried.returncode == 0 else f"networks cannot be created here: {tried.stderr.strip()}"


@contextlib.contextmanager
def _inside(network: Path) -> Iterator[None]:
    """Run a block of this thread in the network of a process; sockets stay in the network in which they are made."""
    with network.open() as there, Path("/proc/thread-self/ns/net").open() as here:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Pod:
    """One pod, from its start to its end. A later pod of the same name has another address.

    Attributes:
        name: its name, which its node has too.
        address: its address.
        volumes: the folder with its files.
        pid: the process of its node.
    """

    def __init__(self, pods: Pods, name: str, address: str, volumes: Path) -> None:
        self.name, self.address, self.volumes = name, address, volumes
        self._pods = pods
        self.log_path = volumes / "log"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "--mount", "sh", str(SCRIPT), str(volumes), address, pods.script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=pods.environment(name),
                start_new_session=True,
            )
        self.pid = self._process.pid
        reaper.tell("+", self.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the node."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Kill the node."""
        self._process.kill()
        self._process.wait(60)
        reaper.tell("-", self.pid)

    def fetch(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of a request with the administrator's token; status 0 without an answer."""
        try:
            with _inside(self._pods.network):
                return fetch(f"{self.address}:9980", path, body, headers={"Authorization": f"Bearer {TOKEN}"})
        except OSError:
            return 0, b""

    def cluster(self) -> dict[str, Any]:
        """Return the cluster as the node sees it."""
        status, body = self.fetch("/v1/cluster")
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def wait_ready(self) -> None:
        """Wait until the pod is ready, as the chart's probe asks it.

        Raises:
            TimeoutError: it is not in time; the text has the end of its log.
        """
        try:
            wait_for(lambda: self.fetch("/readyz")[0] == 200, f"{self.name} at {self.address} is ready")
        except TimeoutError as exc:
            raise TimeoutError(f"{exc}\n{self.log_path.read_text(errors='replace')[-5000:]}") from exc


class Pods:
    """The pods of a StatefulSet on a separate network, in which the test has the address 10.77.0.254."""

    def __init__(self, folder: Path) -> None:
        documents = yaml.safe_load_all(kept("default").read_text(encoding="utf-8"))
        (found,) = (one for one in documents if one and one["kind"] == "StatefulSet")
        (self._container,) = found["spec"]["template"]["spec"]["containers"]
        self.script = self._container["args"][0]
        self._domain = f"{found['spec']['serviceName']}.queues.svc.cluster.local"
        self._folder = folder
        self._addresses: dict[str, str] = {}
        self._hosts: list[Path] = []
        self._pods: list[Pod] = []
        self._number = 0
        self._switch: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        words = (
            "ip link add br0 type bridge && ip addr add 10.77.0.254/24 dev br0 && ip link set br0 up && exec sleep inf"
        )
        self._switch = subprocess.Popen(
            ["unshare", "--net", "sh", "-ec", words], stdin=subprocess.DEVNULL, start_new_session=True
        )
        reaper.tell("+", self._switch.pid)
        self._wait_for_network(self._switch.pid)
        wait_for(lambda: self._ip("link", "show", "up", "dev", "br0").stdout, "the switch is up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pod in self._pods:
            pod.end()
        self._switch.kill()
        self._switch.wait(60)
        reaper.tell("-", self._switch.pid)

    @property
    def network(self) -> Path:
        """Return the network of the switch."""
        return Path(f"/proc/{self._switch.pid}/ns/net")

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a pod's container."""
        given = {one["name"]: one.get("value", name).replace("$(LMQ_NAME)", name) for one in self._container["env"]}
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        return {**clean_environment(given), "PATH": path}

    def start(self, number: int, *, copy_of: Pod | None = None) -> Pod:
        """Start a pod at an address that no pod has had, and change its name in every hosts file.

        Args:
            number: its number in the StatefulSet.
            copy_of: an earlier pod, whose volume it gets. Its node may still run, on a machine that is lost.
        """
        self._number += 1
        name, address = f"{STATEFUL_SET}-{number}", f"10.77.0.{self._number}"
        volumes = self._folder / f"pod{self._number}"
        (volumes / "secrets").mkdir(parents=True)
        (volumes / "secrets" / "cluster-secret").write_text("the secret of pods in tests")
        (volumes / "secrets" / "admin-token").write_text(TOKEN)
        if copy_of is None:
            (volumes / "lib" / "lmq").mkdir(parents=True)
        else:
            shutil.copytree(copy_of.volumes / "lib", volumes / "lib")
        (volumes / "hosts").touch()
        self._hosts.append(volumes / "hosts")
        self._name(name, address)
        pod = Pod(self, name, address, volumes)
        self._pods.append(pod)
        self._wait_for_network(pod.pid)
        port = f"port{self._number}"
        done = self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pod.pid))
        assert done.returncode == 0, done.stderr
        assert self._ip("link", "set", port, "master", "br0", "up").returncode == 0
        return pod

    def unplug(self, pod: Pod) -> None:
        """Cut a pod off: from now on its packets are lost, and its connections do not end."""
        number = pod.address.rpartition(".")[2]
        assert self._ip("link", "set", f"port{number}", "down").returncode == 0

    def _name(self, name: str, address: str) -> None:
        self._addresses[name] = address
        text = "127.0.0.1 localhost\n" + "".join(
            f"{one_address} {one}.{self._domain}\n" for one, one_address in self._addresses.items()
        )
        for hosts in self._hosts:
            # The pods have mounted the file itself, so it must not be replaced.
            hosts.write_text(text)

    def _ip(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run("nsenter", f"--net={self.network}", "ip", *words)

    @staticmethod
    def _wait_for_network(pid: int) -> None:
        own = Path("/proc/self/ns/net").readlink()
        wait_for(lambda: Path(f"/proc/{pid}/ns/net").readlink() != own, "the process has its own network")
