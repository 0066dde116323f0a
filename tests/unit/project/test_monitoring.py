"""Dashboard, alert rules and scrape configuration are valid for Prometheus, tested, and use existing metrics."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.node.metrics.table import BY_NAME, STANDARD
from tests.promtool import run

FOLDER = Path(__file__).parents[3] / "deploy" / "monitoring"
RULES = FOLDER / "rules" / "lmqcluster.yml"
RULES_TEST = FOLDER / "rules_test.yml"
PAGE = FOLDER.parents[1] / "docs" / "alerts.md"
DASHBOARD = FOLDER / "dashboards" / "lmqcluster.json"


def metrics_in(text: str) -> set[str]:
    names = set(re.findall(r"\b(?:lmq|process)_[a-z_]+", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def known() -> set[str]:
    return {*BY_NAME, *STANDARD}


def panels() -> list[dict[str, Any]]:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


def test_promtool_accepts_the_rules_and_their_tests_pass() -> None:
    run("check", "rules", RULES)
    run("test", "rules", RULES_TEST)


def test_promtool_accepts_the_scrape_configuration() -> None:
    run("check", "config", FOLDER / "prometheus.yml")


def test_every_alert_fires_in_some_test() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))
    fired = re.findall(r'alertname="(\w+)"', RULES_TEST.read_text(encoding="utf-8"))
    assert len(alerts) > 15
    assert set(alerts) == set(fired)


def test_every_alert_has_a_section_on_the_page_of_alerts_and_its_link_leads_there() -> None:
    rules = RULES.read_text(encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)", rules)
    sections = re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", page, re.MULTILINE)
    assert [name for name, _text in sections] == alerts
    for name, text in sections:
        parts = re.findall(r"^\*\*(\w+)\.?\*\*", text, re.MULTILINE)
        assert parts == ["Seen", "Meaning", "Action", "Resolved"], name
        assert "```console" in text, name
    links = re.findall(r'runbook_url: "([^"#]+)#([\w-]+)"', rules)
    assert [anchor for _page, anchor in links] == [name.lower() for name in alerts]
    (page_name,) = {page for page, _anchor in links}
    assert PAGE.samefile(PAGE.parents[1] / page_name)


def test_the_readme_makes_links_of_the_runbooks(tmp_path: Path) -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (sed .*)$", readme, re.MULTILINE)
    (tmp_path / "rules").mkdir()
    rules = RULES.read_text(encoding="utf-8")
    (tmp_path / "rules" / RULES.name).write_text(rules, encoding="utf-8")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    links = re.findall(r"runbook_url: (.*)", (tmp_path / "rules" / RULES.name).read_text(encoding="utf-8"))
    anchors = [f"#{name.lower()}" for name in re.findall(r"- alert: (\w+)", rules)]
    assert links == [f'"https://intranet/lmqcluster/alerts.html{anchor}"' for anchor in anchors]
    # The site has the page at this place.
    assert "use_directory_urls: false" in (PAGE.parents[1] / ".mkdocs.yml").read_text(encoding="utf-8")


def test_every_alert_is_provoked_on_real_nodes() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))
    tests = (FOLDER.parents[1] / "tests" / "integration").glob("test_alerts_*.py")
    named = set(re.findall(r'"(Lmq\w+)"', "".join(test.read_text(encoding="utf-8") for test in tests)))
    assert set(alerts) == named


def test_rules_use_existing_metrics() -> None:
    # Descriptions name options, and the tests of rules only metrics.
    expressions = re.sub(r"(summary|description|runbook_url):.*", "", RULES.read_text(encoding="utf-8"))
    names = metrics_in(expressions)
    assert len(names) > 15
    assert names <= known()


def test_the_dashboard_equals_the_output_of_its_script() -> None:
    made = runpy.run_path(str(FOLDER / "make_dashboard.py"))["dashboard"]()
    assert json.loads(DASHBOARD.read_text(encoding="utf-8")) == made


def test_the_dashboard_uses_existing_metrics() -> None:
    names = metrics_in(DASHBOARD.read_text(encoding="utf-8"))
    assert len(names) > 30
    assert names <= known()


def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    run("check", "rules", file)


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for one, other in combinations((panel["gridPos"] for panel in panels()), 2):
        apart_across = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_down = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_across or apart_down
        assert one["x"] + one["w"] <= 24


@pytest.mark.parametrize("expression", expressions())
def test_a_query_is_limited_to_the_chosen_cluster(expression: str) -> None:
    selectors = re.findall(r"\b(?:lmq|process)_[a-z_]+({[^}]*})?", expression)
    assert selectors
    assert all('cluster=~"$cluster"' in selector for selector in selectors)


@pytest.mark.parametrize("expression", expressions())
def test_clusters_are_not_mixed(expression: str) -> None:
    """A median over the nodes of two clusters is meaningless."""
    groupings = re.findall(r"\b(?:quantile|sum|max|min|avg|count)\s*(?:by \(([\w, ]*)\))?\s*\(", expression)
    assert all("cluster" in grouping.split(", ") for grouping in groupings), groupings
