"""The manifests are what Kubernetes and Spark's operator take, and name what windrow and the image have."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped] # it has no types
import pyspark
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import windrow
from windrow.cli import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def application() -> dict[str, Any]:
    (found,) = documents("spark-application.yaml")
    return found


def problems(spec: dict[str, Any]) -> list[str]:
    schema = yaml.safe_load((Path(__file__).parent / "spark_application.yaml").read_text())
    return [error.message for error in Draft202012Validator(schema).iter_errors(spec)]


@pytest.mark.parametrize("number", range(3))
def test_the_manifests_of_one_machine_are_valid(number: int) -> None:
    document = documents("statefulset.yaml")[number]
    kubernetes_validate.validate(document, "1.37", strict=True)
    document["spec" if "spec" in document else "data"]["limitz"] = {}
    if "spec" in document:
        with pytest.raises(kubernetes_validate.ValidationError, match="limitz"):
            kubernetes_validate.validate(document, "1.37", strict=True)


def test_the_manifest_of_a_spark_application_is_valid() -> None:
    found = application()
    assert found["apiVersion"] == "spark.apache.org/v1"
    assert problems(found["spec"]) == []
    for name in ("driverSpec", "executorSpec"):
        pod = found["spec"][name]["podTemplateSpec"]["spec"] | {"restartPolicy": "Never"}
        for container in pod["containers"]:
            container["image"] = found["spec"]["sparkConf"]["spark.kubernetes.container.image"]
        kubernetes_validate.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}, "1.37", strict=True
        )
    found["spec"]["applicationTolerations"]["restartConfig"]["restartPolicy"] = "Sometimes"
    assert problems(found["spec"]) == [
        "'Sometimes' is not one of ['Always', 'Never', 'OnFailure', 'OnInfrastructureFailure']"
    ]


def test_the_manifests_name_what_there_is() -> None:
    spec = application()["spec"]
    container = documents("statefulset.yaml")[2]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == spec["sparkConf"]["spark.kubernetes.container.image"] == f"windrow:{VERSION}"
    assert spec["runtimeVersions"]["sparkVersion"] == pyspark.__version__
    program = spec["pyFiles"].removeprefix("local:///opt/windrow/lib/python3.11/site-packages/windrow/")
    assert (Path(windrow.__file__).parent / program).is_file()
    for words in (container["args"][1:], spec["driverArgs"]):
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        said = CliRunner().invoke(main, [words[0], "--help"]).output
        assert all(option in said for option in options)


def test_the_pipeline_of_the_manifest_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(documents("statefulset.yaml")[0]["data"]["pipeline.yaml"])
    env = {"POSTGRES_PASSWORD": "secret"}
    ran = CliRunner().invoke(main, ["check", str(file)], env=env)
    assert ran.exit_code == 0, ran.output


def test_the_image_recipe_is_clean() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    ran = subprocess.run([hadolint, DEPLOY / "Dockerfile"], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
    bad = subprocess.run([hadolint, "-"], check=False, capture_output=True, text=True, input="FROM python\nRUN cd /a\n")
    assert "DL3006" in bad.stdout


def test_the_image_has_what_the_tests_have() -> None:
    """The lock of the image is a part of the one that the tests run with, and has all that windrow needs."""
    image, tests = (pins(f"requirements/{name}.lock") for name in ("runtime", "windrow"))
    assert image.items() <= tests.items()
    assert image["pyspark"] == pyspark.__version__
    assert "pytest" not in image


def pins(path: str) -> dict[str, str]:
    lines = (ROOT / path).read_text().splitlines()
    pairs = (line.partition("==") for line in lines if line[:1].isalnum())
    return {name: version.split()[0] for name, _, version in pairs}


DRIVER = (
    "-s -- HOME/bin/spark-submit --conf spark.driver.bindAddress=10.0.0.5 --conf "
    "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.5 --deploy-mode client --properties-file x local:///main.py run"
)
EXECUTOR = (
    "-s -- java -Da=1 2 -Db=3 -Xms1g -Xmx1g -cp HOME/conf:HOME/jars/* "
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url spark://d "
    "--executor-id 7 --cores 2 --app-id app --hostname 10.0.0.6 --resourceProfileId 0 --podName pod"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["windrow", "run", "a b"], "-s -- windrow run a b"),
        (["driver", "--properties-file", "x", "local:///main.py", "run"], DRIVER),
        (["executor"], EXECUTOR),
    ],
)
def test_what_a_container_runs(given: list[str], expected: str, tmp_path: Path) -> None:
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\necho "$@"\n')
    tini.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SPARK_HOME": "HOME",
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5",
        "SPARK_JAVA_OPT_10": "-Db=3",
        "SPARK_JAVA_OPT_0": "-Da=1 2",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_DRIVER_URL": "spark://d",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.6",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
    }
    ran = subprocess.run(
        ["/bin/sh", DEPLOY / "entrypoint.sh", *given], check=True, capture_output=True, text=True, env=env
    )
    assert ran.stdout == f"{expected}\n"
