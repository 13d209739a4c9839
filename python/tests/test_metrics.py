"""What the admin port says, read by Prometheus' own library. `TAILCUT` is the binary."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

TAILCUT = os.environ["TAILCUT"]
ROOT = Path(__file__).parents[2]

COMMANDS = {
    "serve": ["--app", "synthetic:fixed:1ms", "--ports", "2"],
    "route": ["--server", "127.0.0.1:9"],
    "agent": [],
}


@pytest.fixture(params=COMMANDS)
def scraped(request):
    """The families of a command's metrics, by name."""
    command = request.param
    args = [TAILCUT, command, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    process = subprocess.Popen(args + COMMANDS[command], stdout=subprocess.PIPE, text=True)
    admin = None
    while admin is None:
        line = process.stdout.readline()
        assert line, "it ends"
        admin = line.removeprefix("admin ").strip() if line.startswith("admin ") else None
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page = answer.read().decode()
    process.terminate()
    assert process.wait() == 0
    return command, list(text_string_to_metric_families(page))


def test_every_family_has_a_help_a_type_and_a_unit(scraped):
    command, families = scraped
    assert len(families) > 4 and len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith(f"tailcut_{command}_")
        assert family.documentation and family.type in ("counter", "gauge", "histogram")
        samples = {sample.name for sample in family.samples}
        if family.type == "counter":
            assert samples <= {f"{family.name}_total"}
        assert not re.search(r"_(ns|us|ms)(_|$)", family.name)
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
            bounds = [float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels]
            assert bounds == sorted(bounds) and bounds[-1] == float("inf")


def test_alerts_are_rules():
    """Their metrics are looked for by the command's own tests."""
    alerts = yaml.safe_load((ROOT / "tools/prometheus/alerts.yml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 4
    for rule in rules:
        assert rule["expr"] and rule["annotations"]["summary"] and rule["labels"]["severity"]
