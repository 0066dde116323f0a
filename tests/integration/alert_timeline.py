"""The alert rules, evaluated over the metrics of real nodes.

A rule waits for minutes, which no test can. So the test scrapes the nodes as Prometheus does, and lays the samples on a
timeline for `promtool test rules`: what happened between two scrapes takes as many minutes as the test says. In that time a
counter grows evenly from the first scrape to the second, and a gauge has the value of the second.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.promtool import promtool

from .cluster import NodeProcess

__all__ = ["RULES", "Timeline"]

RULES: Final = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules" / "lmqcluster.yml"
SCRAPE_S: Final = 60.0
EVALUATION_S: Final = 120.0
_EXPIRY: Final = "lmq_tls_certificate_expiry_seconds"
_FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing"})'

Series = tuple[str, tuple[tuple[str, str], ...]]


class Sample(NamedTuple):
    """The value of a series at one scrape."""

    value: float
    is_counter: bool


class Target(NamedTuple):
    """A page that Prometheus reads."""

    job: str
    instance: str
    url: str


class Timeline:
    """Scrapes of nodes, and the minutes between them.

    Args:
        nodes: the nodes of a cluster.
        folder: for the files of promtool.
        queue_limit: the parameter ``limit`` of the page of queues.
        context: for nodes with TLS.
        headers: of each scrape.
    """

    def __init__(
        self,
        nodes: Sequence[NodeProcess],
        folder: Path,
        *,
        queue_limit: int = 1000,
        context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.queue_limit = queue_limit
        self._nodes = nodes
        self._folder = folder
        self._headers = dict(headers or {})
        self._scheme = "http" if context is None else "https"
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        self._scrapes: list[tuple[int, dict[Series, Sample]]] = []
        self._names = set(re.findall(r"\b(?:lmq|process)_[a-z_]+", RULES.read_text(encoding="utf-8")))

    def scrape(self, minutes: int = 60) -> None:
        """Scrape all nodes; what happened since the last scrape takes `minutes`."""
        now_s, begin_s = time.time(), 60.0 * sum(count for count, _samples in self._scrapes)
        samples: dict[Series, Sample] = {}
        for target in self._targets():
            labels = {"job": target.job, "cluster": "test", "instance": target.instance}
            text = self._page(target.url)
            samples[_series("up", labels)] = Sample(float(text is not None), is_counter=False)
            for name, more, sample in _samples(text or ""):
                if name in self._names:
                    # The timeline begins at the time 0.
                    shift_s = now_s - begin_s if name == _EXPIRY else 0.0
                    samples[_series(name, {**more, **labels})] = sample._replace(value=sample.value - shift_s)
        self._scrapes.append((minutes, samples))

    def begin(self) -> None:
        """Begin a new timeline with the last scrape: short ones are evaluated faster."""
        del self._scrapes[:-1]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire at the end of the timeline."""
        minutes = sum(count for count, _samples in self._scrapes)
        keys = {key for _count, samples in self._scrapes for key in samples}
        test = {
            "interval": "1m",
            "input_series": [{"series": _text(key), "values": self._values(key)} for key in sorted(keys)],
            "promql_expr_test": [{"expr": _FIRING, "eval_time": f"{minutes - 1}m", "exp_samples": []}],
        }
        file = self._folder / "alerts_test.yml"
        # JSON is YAML.
        document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
        file.write_text(json.dumps(document), encoding="utf-8")
        done = subprocess.run(
            [promtool(), "test", "rules", file], capture_output=True, text=True, timeout=EVALUATION_S, check=False
        )
        if done.returncode == 0:
            return set()
        # The test expects no alert, so promtool prints those that fire.
        printed = re.search(r"\bgot:(.*)", done.stdout + done.stderr)
        assert printed is not None, done.stdout + done.stderr
        return set(re.findall(r'alertname="(\w+)"', printed[1]))

    def _targets(self) -> list[Target]:
        nodes = [Target("lmqcluster", node.name, f"{self._scheme}://{node.http}/metrics") for node in self._nodes]
        path = f"/metrics/queues?limit={self.queue_limit}"
        queues = (Target("lmqcluster-queues", node.name, f"{self._scheme}://{node.http}{path}") for node in self._nodes)
        return [*nodes, *queues]

    def _page(self, url: str) -> str | None:
        """Return a page of metrics; None if its node does not answer."""
        try:
            with self._opener.open(urllib.request.Request(url, headers=self._headers), timeout=SCRAPE_S) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException):
            return None
        return body.decode()

    def _values(self, key: Series) -> str:
        """Return the values of a series in the notation of promtool."""
        parts = []
        before: Sample | None = None
        for minutes, samples in self._scrapes:
            sample = samples.get(key)
            if sample is None:
                parts.append(f"_x{minutes}")
            elif before is None or not sample.is_counter or sample.value < before.value:
                parts.append(f"{sample.value:.9f}+0x{minutes - 1}")
            else:
                step = (sample.value - before.value) / minutes
                parts.append(f"{before.value + step:.9f}+{step:.9f}x{minutes - 1}")
            before = sample
        return " ".join(parts)


def _series(name: str, labels: Mapping[str, str]) -> Series:
    return name, tuple(sorted(labels.items()))


def _samples(page: str) -> list[tuple[str, Mapping[str, str], Sample]]:
    return [
        (one.name, one.labels, Sample(one.value, is_counter=family.type in {"counter", "histogram"}))
        for family in text_string_to_metric_families(page)
        for one in family.samples
    ]


def _text(key: Series) -> str:
    name, labels = key
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"
