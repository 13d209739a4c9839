"""The manifests in tools/kubernetes: what they say to the command, and to each other."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

MANIFESTS = sorted((Path(__file__).parents[2] / "tools" / "kubernetes").glob("*.yaml"))


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def containers(path):
    for document in documents(path):
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield from document["spec"]["template"]["spec"]["containers"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_command_takes_the_arguments(path):
    ours = [container for container in containers(path) if container["image"].startswith("tailcut:")]
    assert ours
    for container in ours:
        # What it does not know is told before the help is.
        command = [os.environ["TAILCUT"], *container["args"], "--help"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_ports_and_probes_are_those_of_the_arguments(path):
    for container in containers(path):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        told = dict(part[2:].split("=", 1) for part in container["args"] if part.startswith("--") and "=" in part)
        # A gateway is called by clients of Redis.
        called = "redis" if "gateway" in container["args"] else "calls"
        for name, flag in ((called, "listen"), ("admin", "admin")):
            if flag in told:
                assert int(told[flag].rsplit(":", 1)[1]) == ports[name]
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_service_finds_its_pods(path):
    labels = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in documents(path)
        if document["kind"] != "Service"
    ]
    for document in documents(path):
        if document["kind"] == "Service":
            assert document["spec"]["selector"] in labels
            if any(port["protocol"] == "UDP" for port in document["spec"]["ports"]):
                assert document["spec"]["clusterIP"] == "None", "addresses are not to be translated"


def test_the_router_names_the_servers():
    files = {path.name: path for path in MANIFESTS}
    (router,) = containers(files["router.yaml"])
    named = [part.split("=", 1)[1] for part in router["args"] if part.startswith("--server=")]
    (servers,) = [part for part in documents(files["servers.yaml"]) if part["kind"] == "StatefulSet"]
    name, count = servers["metadata"]["name"], servers["spec"]["replicas"]
    names = [f"{name}-{at}.{servers['spec']['serviceName']}:8000" for at in range(count)]
    assert named == names
    (gateway,) = containers(files["gateway.yaml"])
    assert f"--writes-to={names[0]}" in gateway["args"], "the first is the primary"
