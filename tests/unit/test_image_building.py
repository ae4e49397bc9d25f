"""What would be built from a folder, a Dockerfile or one of Isaac Lab's profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.errors import NotFound, UsageError
from dray.images.building import Build, declared, environment, plan
from dray.images.ray_layer import RayLayer, layer_of, user_in

ENV_BASE = """\
###
# General settings
###
ACCEPT_EULA=Y
ISAACSIM_BASE_IMAGE=registry/isaac-sim
ISAACSIM_VERSION=5.0.0  # the newest
DOCKER_ISAACSIM_ROOT_PATH=/isaac-sim
DOCKER_ISAACLAB_PATH=/workspace/isaaclab
DOCKER_USER_HOME=/root
"""
ENV_ROS2 = """\
ROS2_APT_PACKAGE=ros-base
CYCLONEDDS_URI=${DOCKER_USER_HOME}/.ros/cyclonedds.xml
DOCKER_NAME_SUFFIX=""
"""
DOCKERFILE_BASE = """\
ARG ISAACSIM_BASE_IMAGE_ARG
ARG ISAACSIM_VERSION_ARG
FROM ${ISAACSIM_BASE_IMAGE_ARG}:${ISAACSIM_VERSION_ARG} AS base
ARG ISAACSIM_ROOT_PATH_ARG
ARG ISAACLAB_PATH_ARG
ARG DOCKER_USER_HOME_ARG
ARG OTHER=default
"""
DOCKERFILE_ROS2 = """\
ARG DOCKER_NAME_SUFFIX
FROM isaac-lab-base${DOCKER_NAME_SUFFIX} AS ros2
ARG ROS2_APT_PACKAGE
"""


@pytest.fixture
def isaaclab(tmp_path: Path) -> Path:
    folder = tmp_path / "IsaacLab/docker"
    folder.mkdir(parents=True)
    (folder / ".env.base").write_text(ENV_BASE)
    (folder / ".env.ros2").write_text(ENV_ROS2)
    (folder / "Dockerfile.base").write_text(DOCKERFILE_BASE)
    (folder / "Dockerfile.ros2").write_text(DOCKERFILE_ROS2)
    return folder


def test_the_base_profile_gets_the_arguments_that_docker_compose_would_give(isaaclab: Path) -> None:
    (base,) = plan(isaaclab, None, None, {})
    assert base == Build(
        tag="isaac-lab-base",
        dockerfile=isaaclab / "Dockerfile.base",
        context=isaaclab.parent,
        arguments={
            "ISAACSIM_BASE_IMAGE_ARG": "registry/isaac-sim",
            "ISAACSIM_VERSION_ARG": "5.0.0",
            "ISAACSIM_ROOT_PATH_ARG": "/isaac-sim",
            "ISAACLAB_PATH_ARG": "/workspace/isaaclab",
            "DOCKER_USER_HOME_ARG": "/root",
        },
    )
    assert plan(isaaclab.parent, None, "base", {}) == [base]


def test_a_profile_is_built_after_the_one_that_it_stands_on(isaaclab: Path) -> None:
    base, ros2 = plan(isaaclab, None, "ros2", {})
    assert (base.tag, ros2.tag) == ("isaac-lab-base", "isaac-lab-ros2")
    assert ros2.arguments == {"ROS2_APT_PACKAGE": "ros-base", "DOCKER_NAME_SUFFIX": ""}
    assert ros2.context == isaaclab.parent


def test_a_profile_of_ones_own_stands_on_any_other(isaaclab: Path) -> None:
    (isaaclab / "Dockerfile.mine").write_text("FROM --platform=linux/amd64 isaac-lab-ros2:latest\n")
    (isaaclab / "Dockerfile.alone").write_text("ARG IMAGE_ARG\nFROM ${IMAGE_ARG}\n")
    (isaaclab / ".env.alone").write_text("ALONE_IMAGE=ubuntu\nDOCKER_NAME_SUFFIX='-new'\n")
    assert [one.tag for one in plan(isaaclab, None, "mine", {})] == [
        "isaac-lab-base",
        "isaac-lab-ros2",
        "isaac-lab-mine",
    ]
    (alone,) = plan(isaaclab, None, "alone", {})
    assert (alone.tag, alone.arguments) == ("isaac-lab-alone-new", {"IMAGE_ARG": "ubuntu"})


def test_flags_win_and_a_tag_is_only_for_what_was_asked_for(isaaclab: Path) -> None:
    base, ros2 = plan(isaaclab, "mine:2", "ros2", {"ISAACSIM_VERSION_ARG": "4.5.0"})
    assert (base.tag, ros2.tag) == ("isaac-lab-base", "mine:2")
    assert base.arguments["ISAACSIM_VERSION_ARG"] == "4.5.0"


def test_a_folder_with_a_dockerfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "My Walker_2"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM x\n")
    monkeypatch.chdir(folder)
    (one,) = plan(Path(), None, None, {"A": "b"})
    assert (one.tag, one.dockerfile) == ("my-walker-2", Path("Dockerfile"))
    assert one.words("docker") == [
        *("docker", "build", "--file", "Dockerfile", "--tag", "my-walker-2", "--build-arg", "A=b")
    ]
    assert one.words("podman")[:4] == ["podman", "build", "--format", "docker"]
    (folder / "Dockerfile.train").write_text("FROM x\n")
    (other,) = plan(folder / "Dockerfile.train", "t:1", None, {})
    assert other == Build("t:1", folder / "Dockerfile.train", folder, {})


def test_a_dockerfile_at_the_root_comes_before_profiles(isaaclab: Path) -> None:
    (isaaclab.parent / "Dockerfile").write_text("FROM isaac-lab-base\n")
    (one,) = plan(isaaclab.parent, None, None, {})
    assert one.tag == "isaaclab"
    assert [one.tag for one in plan(isaaclab.parent, None, "base", {})] == ["isaac-lab-base"]


def test_what_cannot_be_built_is_told(isaaclab: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no .*nowhere to build from"):
        plan(tmp_path / "nowhere", None, None, {})
    with pytest.raises(UsageError, match="neither a Dockerfile nor a Containerfile in"):
        plan(tmp_path, None, None, {})
    with pytest.raises(UsageError, match="there are no profiles in"):
        plan(tmp_path, None, "base", {})
    with pytest.raises(NotFound, match=r"no profile 'ros'\. Did you mean 'ros2'\?"):
        plan(isaaclab, None, "ros", {})
    (isaaclab / "Dockerfile.a").write_text("FROM isaac-lab-b\n")
    (isaaclab / "Dockerfile.b").write_text("FROM isaac-lab-a\n")
    with pytest.raises(UsageError, match="profiles a and b stand on each other"):
        plan(isaaclab, None, "a", {})


def test_environment_files_are_read_as_docker_compose_reads_them(tmp_path: Path) -> None:
    (tmp_path / ".env.base").write_text(
        "A=1\nexport B='$A # no'\nC=\"x y\" # why\nD=two words\n\nnothing\nE=$A-${B}-$$ok\n"
    )
    (tmp_path / ".env.p").write_text("A=2\nF=${A}\nG=\n")
    assert environment(tmp_path, "p") == {
        "A": "2",
        "B": "$A # no",
        "C": "x y",
        "D": "two words",
        "E": "1-$A # no-$ok",
        "F": "2",
        "G": "",
    }


def test_arguments_of_a_dockerfile() -> None:
    assert declared('ARG A\narg B=1 C="x"\n# ARG D\nRUN x ARG E\n  ARG F\n') == ["A", "B", "C", "F"]


# -- with Ray on top ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layer", "base", "user"),
    [
        ("plain", RayLayer(), "train", ""),
        (
            "isaac",
            layer_of("2.55.1", "/isaac-sim/python.sh", ["optuna", "mlflow==3.1.0"]),
            "isaac-lab-base",
            "isaac:isaac",
        ),
    ],
)
def test_the_dockerfile_with_ray_is_golden(
    name: str, layer: RayLayer, base: str, user: str
) -> None:
    golden = Path(__file__).parent / "golden" / f"ray-layer-{name}.Dockerfile"
    assert layer.text(base, user) == golden.read_text()


def test_an_image_with_ray_is_named_after_its_base() -> None:
    names = {
        "train": "train-ray:2.60.0",
        "registry.example.org:5000/lab/train:1": "train-ray:2.60.0",
        "lab/train@sha256:0a": "train-ray:2.60.0",
    }
    assert {one: RayLayer().build(one, None).tag for one in names} == names
    built = RayLayer().build("train", "mine:1")
    assert (built.tag, built.words("docker")[-1]) == ("mine:1", "mine:1")
    assert built.text.count("\nFROM train\n") == 1


@pytest.mark.parametrize(
    ("version", "python", "packages", "told"),
    [
        ("docker/Dockerfile", "python3", [], "no version of Ray"),
        ("2.60", "python3", [], "no version of Ray"),
        ("2.51.0", "python3", [], "knows no token"),
        ("2.60.0", "python3; rm -rf /", [], "name a program of the image"),
        ("2.60.0", "-r/requirements.txt", [], "name a program of the image"),
        ("2.60.0", "python3", ["optuna", "--index-url=http://x"], "name packages"),
        ("2.60.0", "python3", ["mlflow'\nUSER root"], "name packages"),
    ],
)
def test_what_cannot_be_put_on_top_is_refused(
    version: str, python: str, packages: list[str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        layer_of(version, python, packages)


def test_nothing_but_names_goes_into_the_dockerfile() -> None:
    with pytest.raises(UsageError, match="not the name of an image"):
        RayLayer().text("train\nRUN true")
    assert "evil" not in RayLayer().text("train", "evil\nRUN true")
    assert user_in("FROM a\nUSER root\nuser isaac:1000\nRUN USER x\n") == "isaac:1000"
    assert user_in("FROM a\nUSER ${WHO}\n") == ""
