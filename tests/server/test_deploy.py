"""The files in deploy/ fit the server."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from every_metric import render_every_metric
from quire.cluster.run import node_environment
from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig
from quire.config_file import read_config
from quire.server.lifecycle import _LAST_BYTES_TIMEOUT_S, _STOP_TIMEOUT_S
from quire.server.settings import ServerSettings
from quire.settings import parse_size

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def read_unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "quire.service")
    return unit


# -- Grafana -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return loaded


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_the_dashboard_shows_every_metric_and_none_that_is_not_there(board: dict[str, Any]) -> None:
    rendered = render_every_metric()
    series = set(re.findall(r"^(quire_\w+)\{", rendered, re.M))
    used = set(re.findall(r"quire_\w+", " ".join(expressions(board))))
    assert used <= series
    families = set(re.findall(r"^# TYPE (quire_\S+)", rendered, re.M))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} == families


def test_the_dashboard_groups_by_labels_that_its_metrics_have(board: dict[str, Any]) -> None:
    rendered = render_every_metric()
    series = re.findall(r"^(quire_\w+)\{(.+)\}", rendered, re.M)
    labels = {name: set(re.findall(r"(\w+)=", text)) for name, text in series}
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    num_grouped = 0
    for target in targets:
        groups = {name for group in re.findall(r"by \(([\w, ]+)\)", target["expr"]) for name in group.split(", ")}
        num_grouped += bool(groups)
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= groups
        for metric in re.findall(r"quire_\w+", target["expr"]):
            assert groups <= labels[metric], metric
    assert num_grouped > len(targets) / 2


def test_every_panel_follows_the_choice_of_data_source_and_model(board: dict[str, Any]) -> None:
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "model"]
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
    for expression in expressions(board):
        of_models = re.findall(r"quire_(?!http_requests|request_rejections|collection_|embedder_)\w+", expression)
        assert expression.count('{model_name=~"$model"}') == len(of_models)


def test_no_two_panels_are_in_one_place(board: dict[str, Any]) -> None:
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


# -- systemd -----------------------------------------------------------------------------------------------------------


def test_systemd_waits_longer_than_the_server_drains() -> None:
    service = read_unit()["Service"]
    drain = re.search(r"--shutdown-timeout (\d+)", service["ExecStart"])
    assert drain
    assert int(service["TimeoutStopSec"]) > int(drain[1]) + _LAST_BYTES_TIMEOUT_S + _STOP_TIMEOUT_S
    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "on-failure"


def test_the_unit_keeps_the_tenants_secret_where_the_server_looks_for_it() -> None:
    service = read_unit()["Service"]
    assert service["StateDirectory"] == "quire"
    assert "XDG_STATE_HOME=%S" in service["Environment"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "quire.service"
    unit.write_text((DEPLOY / "quire.service").read_text().replace("/opt/quire/bin/quire", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# -- Docker ------------------------------------------------------------------------------------------------------------


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def test_what_the_image_copies_is_there() -> None:
    for instruction, arguments in dockerfile():
        if instruction == "COPY" and not arguments.startswith("--from"):
            *sources, _ = arguments.split()
            for source in sources:
                assert (ROOT / source).exists(), source


def test_the_image_does_not_run_as_root_and_ends_as_the_server_wants_it() -> None:
    last = dict(dockerfile())
    assert last["USER"] == "quire"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(last["ENTRYPOINT"])[:2] == ["quire", "serve"], "not through a shell, which keeps signals"


def test_the_images_health_check_asks_the_port_of_the_server() -> None:
    command = dict(dockerfile())["HEALTHCHECK"].partition("CMD ")[2]
    _, _, code = json.loads(command)
    compile(code, "health check", "exec")
    assert "'http://127.0.0.1:' + os.environ['QUIRE_PORT'] + '/readyz'" in code
    assert any(name == "ENV" and "QUIRE_PORT=8000" in arguments for name, arguments in dockerfile())


def test_the_image_gets_the_sources_and_no_kernels_of_the_host() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert "src/quire/kernels/lib" in ignored
    copied = {
        source
        for instruction, arguments in dockerfile()
        if instruction == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    }
    assert {f"!{source}" for source in copied} == {line for line in ignored if line.startswith("!")}


def test_compose_passes_options_that_there_are_to_the_image() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["quire"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    known = set(re.findall(r"--[\w-]+", (ROOT / "docs/reference/options.md").read_text()))
    assert {argument for argument in service["command"] if argument.startswith("--")} <= known
    mounted = {volume.partition(":")[2] for volume in service["volumes"]}
    assert set(json.loads(dict(dockerfile())["VOLUME"])) == mounted
    assert int(service["stop_grace_period"].rstrip("s")) > ServerSettings().shutdown_timeout_s


# -- what is said about it ---------------------------------------------------------------------------------------------


def test_the_readme_links_what_there_is() -> None:
    links = set(re.findall(r"\]\(([^)]+)\)", (DEPLOY / "README.md").read_text()))
    assert {link for link in links if "/" not in link} == {path.name for path in DEPLOY.iterdir()} - {"README.md"}
    assert all((DEPLOY / link).exists() for link in links)


# -- files of options, and clusters ------------------------------------------------------------------------------------


def check_options(source: Any) -> dict[str, EngineConfig]:
    """Check that every key is an option with a valid value, and return the engines."""
    file = read_config(source, (ServerSettings, ClusterSettings))
    file.make(ServerSettings)
    file.make(ClusterSettings)
    return file.make_engines()


def test_the_file_of_options_is_one() -> None:
    engines = check_options(DEPLOY / "serve.yaml")
    assert [(name, config.model, config.max_num_seqs) for name, config in engines.items()] == [
        ("quire-mini", "quire-mini", 64),
        ("chat", "quire-chat", 32),
    ]


def test_kubernetes_gets_options_that_there_are_from_files_that_are_mounted() -> None:
    config, _, service = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    options = yaml.safe_load(config["data"]["serve.yaml"])
    check_options(options)
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = application["import_path"].partition(":")
    assert hasattr(import_module(module), name)
    cluster = service["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    assert group["maxReplicas"] == options["max-replicas"], "a machine for each replica"
    for pod in (cluster["headGroupSpec"]["template"]["spec"], group["template"]["spec"]):
        (container,) = pod["containers"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        files = (application["args"]["config"], options["api-key-file"])
        assert {*(str(Path(path).parent) for path in files), options["kv-dir"]} <= set(mounts)
        assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    held = int(group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    assert options["replica-cpus"] <= held - 1, "and some for Ray's own processes"


def test_plain_kubernetes_probes_the_server_and_mounts_what_its_options_name() -> None:
    config, pods, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    options = yaml.safe_load(config["data"]["serve.yaml"])
    check_options(options)
    pod = pods["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for path in (container["args"][1], options["api-key-file"], options["kv-dir"]):
        assert str(Path(path).parent) in mounts
    claims = [claim["metadata"]["name"] for claim in pods["spec"]["volumeClaimTemplates"]]
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert {mount["name"] for mount in container["volumeMounts"]} == {*claims, *volumes}
    assert container["ports"][0]["containerPort"] == options["port"] == service["spec"]["ports"][0]["port"]
    assert pod["terminationGracePeriodSeconds"] > options["shutdown-timeout"] + _LAST_BYTES_TIMEOUT_S + _STOP_TIMEOUT_S
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in ("/livez", "/readyz")


def test_the_launchers_file_has_what_ray_asks_for() -> None:
    cluster = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())
    assert cluster["provider"]["type"] == "local"
    assert cluster["min_workers"] == cluster["max_workers"] == len(cluster["provider"]["worker_ips"])
    for commands in ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands"):
        for command in cluster[commands]:
            assert subprocess.run(["bash", "-n", "-c", command], timeout=60, check=False).returncode == 0


def test_machines_started_by_others_get_the_same_settings() -> None:
    config, _, service = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    cluster = service["spec"]["rayClusterConfig"]
    launcher = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())
    on_kubernetes = [
        {each["name"]: each["value"] for each in group["template"]["spec"]["containers"][0]["env"]}
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    ]
    by_hand = [
        dict(each.split("=") for each in re.findall(r"^export ([^;]+);.* start ", command)[0].split())
        for command in (launcher["head_start_ray_commands"][-1], launcher["worker_start_ray_commands"][-1])
    ]
    options = yaml.safe_load(config["data"]["serve.yaml"])
    for told, source in zip(on_kubernetes + by_hand, [options] * 2 + [DEPLOY / "serve.yaml"] * 2, strict=True):
        limit = read_config(source, (ServerSettings, ClusterSettings)).make(ServerSettings).max_body_bytes
        told["QUIRE_MAX_BODY_BYTES"] = str(parse_size(told["QUIRE_MAX_BODY_BYTES"]))
        assert told == node_environment(limit)
