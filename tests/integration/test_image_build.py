"""dray image build and the reading of images, with a real podman."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pip
import pytest

from dray.errors import NotFound, Refused
from dray.images import engine, partial_export
from tests.conftest import Dray
from tests.integration.test_cli import refuse
from tests.rigs.containers import (
    BASE,
    HERE,
    Apptainer,
    Docker,
    Podman,
    all_programs_but,
    called,
)

pytestmark = pytest.mark.containers


@pytest.fixture
def laptop(dray: Dray, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> Podman:
    """The one engine that dray finds, also where it is called as a library."""
    dray.use(podman.bin)
    monkeypatch.setenv("PATH", dray.env["PATH"])
    return podman


def test_a_dockerfile_becomes_an_image(dray: Dray, laptop: Podman) -> None:
    dray.write("Dockerfile", f'FROM {BASE}\nARG WHO\nRUN echo "$WHO" > /who\n')
    built = dray("image", "build", "--build-arg", "WHO=us", "--tag", "localhost/who:1")
    number = built.stdout.strip()
    assert number == f"sha256:{laptop('image', 'inspect', '-f', '{{.Id}}', 'who:1').strip()}"
    assert laptop("run", "--rm", number, "cat", "/who") == "us\n"
    assert "building localhost/who:1 from Dockerfile with podman" in built.stderr
    assert "STEP" in built.stderr


def test_a_profile_is_built_on_its_base(dray: Dray, laptop: Podman) -> None:
    dray.write("docker/.env.base", f"ISAACSIM_BASE_IMAGE={BASE}\nDOCKER_ISAACLAB_PATH=/lab\n")
    dray.write("docker/.env.ros2", "ROS2_APT_PACKAGE=ros-base\n")
    dray.write("isaaclab.sh", "echo lab\n")
    # As Isaac Lab has them: the context is the repository, and SHELL is docker's alone.
    dray.write(
        "docker/Dockerfile.base",
        "ARG ISAACSIM_BASE_IMAGE_ARG\nFROM ${ISAACSIM_BASE_IMAGE_ARG} AS base\n"
        'SHELL ["python3", "-c"]\nARG ISAACLAB_PATH_ARG\n'
        "ENV ISAACLAB_PATH=${ISAACLAB_PATH_ARG}\nCOPY isaaclab.sh ${ISAACLAB_PATH}/\n"
        "RUN print('python', file=open('/shell', 'w'))\n",
    )
    dray.write(
        "docker/Dockerfile.ros2",
        "FROM isaac-lab-base AS ros2\nARG ROS2_APT_PACKAGE\nENV ROS=${ROS2_APT_PACKAGE}\n",
    )
    number = dray("image", "build", "--profile", "ros2").stdout.strip()
    said = laptop("run", "--rm", "isaac-lab-ros2", "sh", "-c", "echo $ROS; sh /lab/isaaclab.sh")
    assert said == "ros-base\nlab\n"
    assert laptop("run", "--rm", "isaac-lab-base", "cat", "/shell") == "python\n"
    found = engine.find("isaac-lab-ros2")
    assert (found.id, found.name) == (number, "isaac-lab-ros2:latest")


RAY = """\
import os, sys
def main():
    print("ray, version 2.60.0 of", os.environ.get("PYTHON_SH", "python3"), *sys.argv[1:])
if __name__ == "__main__":
    main()
"""


def stand_in(folder: Path, name: str, version: str, **files: str) -> None:
    """Make a wheel: no package index is asked."""
    about = f"{name}-{version}.dist-info"
    texts = {f"{name}/{path.replace('__', '/')}.py": text for path, text in files.items()}
    texts[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: default\n"
    )
    texts[f"{about}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{about}/RECORD"
    texts[record] = "".join(f"{one},,\n" for one in [*texts, record])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in texts.items():
            wheel.writestr(path, text)


def test_ray_is_put_on_top_by_the_images_own_python(dray: Dray, laptop: Podman) -> None:
    """As in Isaac Sim's image: Python is a script, and containers are not root's."""
    stand_in(
        dray.project / "wheels", "ray", "2.60.0", init="", scripts__init="", scripts__scripts=RAY
    )
    stand_in(dray.project / "wheels", "optuna", "4.0.0", init="")
    shutil.copytree(Path(pip.__file__).parent, dray.project / "pip")
    dray.write("python.sh", '#!/bin/sh\nexport PYTHON_SH=python.sh\nexec python3 "$@"\n')
    dray.write("bash", '#!/bin/sh\nexec sh "$@"\n')
    dray.write(
        "Dockerfile",
        f"FROM {BASE}\nCOPY bash /bin/bash\nCOPY python.sh /sim/python.sh\n"
        "RUN chmod 755 /bin/bash /sim/python.sh\nCOPY pip /opt/pip/pip\nCOPY wheels /wheels\n"
        "ENV PYTHONPATH=/opt/pip PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels\n"
        'SHELL ["python3", "-c"]\nUSER 1000:1000\n',
    )
    words = ("image", "build", "--python", "/sim/python.sh", "--with", "optuna", "--tag", "sim:1")
    planned = dray(*words, "--ray", "--plan").stdout
    assert "'ray[default]==2.60.0' 'optuna'\n" in planned
    assert planned.endswith("\nUSER 1000:1000\n")
    number = dray(*words, "--ray").stdout.strip()
    assert engine.find("sim:1").id == number
    # KubeRay's own words: a login shell.
    said = laptop("run", "--rm", "sim:1", "bash", "-lc", "ray start --head; id -u")
    assert said == "ray, version 2.60.0 of python.sh start --head\n1000\n"
    assert (
        laptop("run", "--rm", "sim:1", "/sim/python.sh", "-c", "import optuna; print(1)") == "1\n"
    )
    again = dray("image", "build", "--ray", "2.60.0", "--from", "sim:1").stdout.strip()
    assert engine.find("sim-ray:2.60.0").id == again


def test_ray_is_refused_where_it_makes_no_sense(dray: Dray, laptop: Podman) -> None:
    dray.write("Dockerfile", f"FROM {BASE}\n")
    assert "goes with --ray" in refuse(dray, 2, "image", "build", "--with", "optuna")
    assert "in front of --ray" in refuse(dray, 2, "image", "build", "--ray", "Dockerfile")
    both = ("image", "build", "Dockerfile", "--ray=2.60.0", "--from", BASE)
    assert "name one of them" in refuse(dray, 2, *both)
    assert "cannot pull it" in refuse(
        dray, 4, "image", "build", "--ray", "--from", "localhost/no:1"
    )
    said = refuse(dray, 4, "image", "build", "--ray")
    assert "the image lacks bash, and has nothing to install that with" in said


def test_an_image_that_cannot_be_built(dray: Dray, laptop: Podman) -> None:
    dray.write("Dockerfile", f"FROM {BASE}\nRUN echo wrong >&2; exit 3\n")
    said = refuse(dray, 4, "image", "build", "--tag", "wrong")
    assert "wrong\n" in said
    assert "podman could not build wrong from Dockerfile" in said


def test_an_image_for_another_machine(dray: Dray, laptop: Podman) -> None:
    dray.write("Dockerfile", "FROM scratch\nCOPY Dockerfile /\n")
    dray("image", "build", "--tag", "localhost/far:1", "--platform", "linux/arm64")
    assert engine.find("far:1").architecture == "arm64"


def test_build_is_told_what_it_needs(dray: Dray, laptop: Podman, tmp_path: Path) -> None:
    assert "neither a Dockerfile nor a Containerfile" in refuse(dray, 2, "image", "build")
    dray.write("Dockerfile", f"FROM {BASE}\n")
    assert "is not NAME=VALUE" in refuse(dray, 2, "image", "build", "--build-arg", "WHO")
    dray.env["PATH"] = str(all_programs_but(tmp_path / "few", "docker", "podman"))
    assert "neither docker nor podman" in refuse(dray, 4, "image", "build")


def test_an_image_is_known_by_its_layers(laptop: Podman, train_image: str) -> None:
    image = engine.find("dray-train:1")
    shown = laptop("image", "inspect", "-f", "{{.Id}} {{.RootFS.Layers}}", train_image)
    assert image.id.removeprefix("sha256:") == shown.split()[0]
    assert " ".join(image.layers) in shown
    with image.read(frozenset(image.layers[1:])) as layers:
        found = {layer: hashlib.sha256(stream.read()).hexdigest() for layer, stream in layers}
    assert found == {layer: layer.removeprefix("sha256:") for layer in image.layers[1:]}


def test_unwanted_layers_are_not_read(laptop: Podman, train_image: str) -> None:
    image = engine.find("dray-train:1")
    wanted = frozenset(image.layers[1:])
    with partial_export.exported(image.id, image.layers, wanted) as found:
        assert found is not None
        folder, known = found
        sizes = {layer: (folder / file).stat().st_size for file, layer in known.items()}
    assert {layer for layer, size in sizes.items() if size} == wanted
    assert not folder.exists()


def test_an_engine_that_writes_no_folders_saves_the_image_whole(
    laptop: Podman, train_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "podman"
    other.write_text(f'#!/bin/sh\n[ "$1" != push ] || exit 125\nexec {laptop.bin}/podman "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    image = engine.find("dray-train:1")
    with image.read(frozenset(image.layers[2:])) as layers:
        assert [layer for layer, _ in layers] == [image.layers[2]]


def test_reading_can_be_given_up_in_the_middle(laptop: Podman, train_image: str) -> None:
    image = engine.find("dray-train:1")
    with image.read(frozenset(image.layers)) as layers:
        _, stream = next(layers)
        assert len(stream.read(1000)) == 1000


def test_an_image_that_goes_away_is_told(laptop: Podman, train_image: str) -> None:
    laptop.make_train("localhost/short-lived:1", "print('not for long')\n")
    image = engine.find("short-lived:1")
    laptop("image", "rm", "--force", "short-lived:1")
    with (
        pytest.raises(Refused, match=r"podman failed: .*image not known"),
        image.read(frozenset(image.layers)) as layers,
    ):
        list(layers)
    with pytest.raises(NotFound, match=r"no image 'dray-trian:1' in podman.*'dray-train:1'\?"):
        engine.find("dray-trian:1")


def test_apptainer_makes_the_same_of_an_image_and_of_its_layers_and_config(
    laptop: Podman, train_image: str, apptainer: Apptainer, tmp_path: Path
) -> None:
    """What inspect tells is config enough."""
    image = engine.find(train_image)
    blobs = tmp_path / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes, kind: str) -> str:
        name = hashlib.sha256(content).hexdigest()
        (blobs / name).write_bytes(content)
        media = f"application/vnd.oci.image.{kind}"
        return f'{{"mediaType":"{media}","digest":"sha256:{name}","size":{len(content)}}}'

    with image.read(frozenset(image.layers)) as layers:
        entries = {layer: put(stream.read(), "layer.v1.tar") for layer, stream in layers}
    config = put(image.config.encode(), "config.v1+json")
    listed = ",".join(entries[layer] for layer in image.layers)
    manifest = f'{{"schemaVersion":2,"config":{config},"layers":[{listed}]}}'
    entry = put(manifest.encode(), "manifest.v1+json")
    (tmp_path / "index.json").write_text(f'{{"schemaVersion":2,"manifests":[{entry}]}}')
    (tmp_path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    assert engine.find(f"oci:{tmp_path}").layers == image.layers
    apptainer("build", str(tmp_path / "it.sif"), f"oci:{tmp_path}")
    said = apptainer("run", str(tmp_path / "it.sif"))
    assert said == f"training {os.getuid()}\n"
    asked = ["exec", str(tmp_path / "it.sif"), "sh", "-c", "echo $TRAIN_HOME"]
    assert apptainer(*asked) == "/opt/train\n"


@pytest.fixture(params=[False, True], ids=["own store", "containerd's store"])
def docker(request: pytest.FixtureRequest, rig_folder: Path) -> Iterator[Docker]:
    engine = Docker(rig_folder / "docker", containerd=request.param)
    engine.start()
    yield engine
    engine.stop()


@pytest.mark.docker
def test_docker_does_the_same(
    dray: Dray, docker: Docker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dray.env["PATH"] = str(all_programs_but(tmp_path / "few", "docker", "podman"))
    dray.use(docker.bin)
    monkeypatch.setenv("PATH", dray.env["PATH"])
    base = called([str(HERE / "base-image")]).strip()
    docker("import", base, "dray-base:1")
    dray.write("train.py", "print('training')\n")
    dray.write("Dockerfile", "FROM dray-base:1\nENV A=b\nCOPY train.py /train.py\n")
    number = dray("image", "build", "--tag", "train:1").stdout.strip()
    image = engine.find("train:1")
    assert (image.id, image.name, len(image.layers)) == (number, "train:1", 2)
    assert "A=b" in json.loads(image.config)["config"]["Env"]
    for wanted in (image.layers, image.layers[1:]):
        with image.read(frozenset(wanted)) as layers:
            found = {layer: hashlib.sha256(stream.read()).hexdigest() for layer, stream in layers}
        assert found == {layer: layer.removeprefix("sha256:") for layer in wanted}
    docker("save", "--output", str(tmp_path / "saved.tar"), "train:1")
    assert engine.find(str(tmp_path / "saved.tar")).layers == image.layers
    with pytest.raises(NotFound, match=r"no image 'trian:1' in docker\. .*'train:1'"):
        engine.find("trian:1")
    docker.daemon.terminate()
    docker.daemon.wait(30)
    with pytest.raises(Refused, match="docker has no daemon running"):
        engine.find("train:1")
