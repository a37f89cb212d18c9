"""What docs/deploy shows: commands that exist, probes that answer, names that fit together; no cluster."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from typer.main import get_command

from reticent.apps.service import commands
from reticent.service.health import PATHS

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


def manifests():
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def composed():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def container(kind):
    (found,) = manifests()[kind]["spec"]["template"]["spec"]["containers"]
    return found


def is_understood(given):
    """Whether the command takes these words; it does not run."""
    import typer

    app = typer.Typer()
    app.command("serve")(commands.serve)
    app.command("publish")(commands.publish)
    return CliRunner().invoke(get_command(app), [*given, "--help"]).exit_code == 0 and all(
        re.search(rf"{one}\b", CliRunner().invoke(get_command(app), [given[0], "--help"]).output)
        for one in given
        if one.startswith("--")
    )


@pytest.mark.parametrize(
    "given",
    [
        composed()["publish"]["command"],
        composed()["server"]["command"],
        container("Job")["args"],
        container("Deployment")["args"],
    ],
)
def test_what_is_run_is_a_command(given):
    assert is_understood(given)


def test_planted_a_misspelt_option_is_caught():
    assert not is_understood(["serve", "/data", "--dran", "10"])


def test_probes_ask_what_there_is():
    probes = [container("Deployment")[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert {one["httpGet"]["path"] for one in probes} <= set(PATHS)
    assert probes[2]["httpGet"]["path"] == "/health/ready"
    assert "/health/live" in composed()["server"]["healthcheck"]["test"][-1]


def test_a_server_has_the_time_that_it_needs_to_end():
    """To drain, and to answer what it was given."""
    found = manifests()["Deployment"]["spec"]
    drain = int(container("Deployment")["args"][-1])
    assert found["template"]["spec"]["terminationGracePeriodSeconds"] > drain + 30
    assert found["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert (
        int(composed()["server"]["stop_grace_period"].rstrip("s"))
        > int(composed()["server"]["command"][-1]) + 30
    )


def test_names_fit_together():
    found = manifests()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget"):
        chosen = found[kind]["spec"]["selector"]
        assert chosen.get("matchLabels", chosen) == labels
    for kind in ("Job", "Deployment"):
        spec = found[kind]["spec"]["template"]["spec"]
        volumes = {one["name"] for one in spec["volumes"]}
        assert {one["name"] for one in container(kind)["volumeMounts"]} <= volumes
        assert container(kind)["env"][0]["name"] == "RETICENT_SHARED"
        assert spec["securityContext"]["runAsNonRoot"] is True
    mounted = {one["name"]: one for one in container("Deployment")["volumeMounts"]}
    assert mounted["declarations"]["readOnly"] is True
