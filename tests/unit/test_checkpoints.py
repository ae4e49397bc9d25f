"""The newest whole checkpoint is found among half-written, temporary and foreign files."""

import json
import os
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.checkpoints.newest import (
    Checkpoint,
    candidates,
    is_whole,
    natural,
    newest,
    prune,
    tells_its_end,
)

Maker = Callable[[Path], None]


def write_zip(path: Path) -> None:
    """As torch.save writes it: an uncompressed zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"step": 1}))
        archive.writestr("model/data/0", os.urandom(5000))


def write_zips_in_a_zip(path: Path) -> None:
    """As stable-baselines3 saves: what torch.save wrote, uncompressed, within a zip of its own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("data", json.dumps({"num_timesteps": 1}))
        for name in ("policy.optimizer.pth", "policy.pth"):
            with archive.open(name, "w") as inner, zipfile.ZipFile(inner, "w") as weights:
                weights.writestr("archive/data.pkl", pickle.dumps({"step": 1}))
                weights.writestr("archive/data/0", os.urandom(500))


def write_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": list(range(2000)), "name": "x" * 300}, protocol=4))


def write_safetensors(path: Path) -> None:
    tensors = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        "b": {"dtype": "U8", "shape": [3], "data_offsets": [16, 19]},
    }
    header = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(19))


def write_json(path: Path) -> None:
    path.write_text(json.dumps({"step": 12, "name": "ü", "list": [1, 2, {"a": None}]}))


FORMATS: dict[str, Maker] = {
    "model.pt": write_zip,
    "model.zip": write_zips_in_a_zip,
    "model.pkl": write_pickle,
    "model.safetensors": write_safetensors,
    "model.json": write_json,
}


def save(path: Path, at: float = 1000.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    FORMATS.get(f"model{path.suffix}", write_zip)(path)
    os.utime(path, (at, at))
    return path


def found(outputs: Path, pattern: str) -> str | None:
    checkpoint = newest(str(outputs), {"checkpoint": pattern})
    return os.path.relpath(checkpoint.path, outputs) if checkpoint else None


# -- which is the newest ------------------------------------------------------------------------


def test_the_newest_by_time_wins(tmp_path: Path) -> None:
    save(tmp_path / "model_900.pt", at=3000)
    save(tmp_path / "model_1000.pt", at=2000)
    assert found(tmp_path, "model_*.pt") == "model_900.pt"


def test_at_the_same_time_the_larger_number_wins(tmp_path: Path) -> None:
    for step in (999, 1000, 20):
        save(tmp_path / f"model_{step}.pt")
    assert found(tmp_path, "model_*.pt") == "model_1000.pt"
    assert [
        os.path.basename(one.path) for one in candidates(str(tmp_path), {"checkpoint": "*.pt"})
    ] == [
        "model_1000.pt",
        "model_999.pt",
        "model_20.pt",
    ]


@pytest.mark.parametrize("run", ["2026-11-16_10-00-00_tmp", "tmp", "my-tmp-run"])
def test_a_run_may_be_called_tmp(tmp_path: Path, run: str) -> None:
    save(tmp_path / run / "model_50.pt")
    assert found(tmp_path, "*/model_*.pt") == f"{run}/model_50.pt"


@pytest.mark.parametrize(
    "folder", ["tmp-checkpoint-500", "500.orbax-checkpoint-tmp-1719", "step_500.tmp", "a.partial"]
)
def test_a_folder_that_is_being_written(tmp_path: Path, folder: str) -> None:
    save(tmp_path / "step_400/model.pt", at=1000)
    save(tmp_path / folder / "model.pt", at=2000)
    assert found(tmp_path, "*/model.pt") == "step_400/model.pt"


def test_names_in_any_script_can_be_compared(tmp_path: Path) -> None:
    """'²' is a digit for Python, but not a number."""
    names = ["m1²", "m٣", "m10"]
    assert sorted(names, key=natural)[-1] == "m10"
    for name in names:
        save(tmp_path / f"{name}.pt")
    assert found(tmp_path, "*.pt") == "m10.pt"


def test_folders_below_are_searched_only_if_the_pattern_says_so(tmp_path: Path) -> None:
    save(tmp_path / "logs/a/b/model_1.pt")
    assert found(tmp_path, "logs/*.pt") is None
    assert found(tmp_path, "logs/**/model_*.pt") == "logs/a/b/model_1.pt"


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert newest(str(tmp_path), {"checkpoint": "*.pt"}) is None
    assert newest(str(tmp_path / "absent"), {"checkpoint": "*.pt"}) is None
    save(tmp_path / "model.pt")
    assert newest(str(tmp_path), {"checkpoint": None}) is None
    assert newest(str(tmp_path), {"checkpoint": ""}) is None


def test_an_outputs_folder_with_a_pattern_in_its_name(tmp_path: Path) -> None:
    outputs = tmp_path / "run[1]*"
    save(outputs / "model.pt")
    assert found(outputs, "*.pt") == "model.pt"


@pytest.mark.parametrize(
    "name",
    [
        "model_2.pt.tmp",
        "model_2.tmp.pt",
        "model_2.pt.part",
        "model_2.pt.partial",
        "model_2.pt.incomplete",
        "model_2.pt~",
        "tmp-model_2.pt",
        "model_2.pt-tmp-17192",
        "step_2.TMP/model_2.pt",
        ".model_2.pt.Xy12",
    ],
)
def test_temporary_names_are_passed_over(tmp_path: Path, name: str) -> None:
    save(tmp_path / "model_1.pt", at=1000)
    save(tmp_path / name, at=2000)
    assert found(tmp_path, "**/*") == "model_1.pt"
    assert found(tmp_path, "**/.*") is None


@pytest.mark.parametrize(
    "name", ["temp_0.7.pt", "part_1.pt", "attempt.pt", "tmpest.pt", ".hidden/model.pt"]
)
def test_names_that_only_look_temporary_are_taken(tmp_path: Path, name: str) -> None:
    save(tmp_path / name)
    assert found(tmp_path, name) == name


def test_links(tmp_path: Path) -> None:
    """A dangling one is passed over; one that leads somewhere is as good as its file."""
    save(tmp_path / "model_1.pt")
    (tmp_path / "gone.pt").symlink_to("nowhere")
    (tmp_path / "last.pt").symlink_to("model_1.pt")
    assert found(tmp_path, "gone.pt") is None
    assert found(tmp_path, "last.pt") == "last.pt"
    assert found(tmp_path, "*.pt") in ("last.pt", "model_1.pt")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model_2.pt")
    save(tmp_path / "model_1.pt", at=1)
    assert found(tmp_path, "*.pt") == "model_1.pt"


def test_the_same_checkpoint_is_known_again(tmp_path: Path) -> None:
    path = save(tmp_path / "model.pt", at=1000)
    first = newest(str(tmp_path), {"checkpoint": "*.pt"})
    assert first is not None
    assert first.same(newest(str(tmp_path), {"checkpoint": "*.pt"}))
    assert not first.same(None)
    os.utime(path, (2000, 2000))
    assert not first.same(newest(str(tmp_path), {"checkpoint": "*.pt"}))


# -- which is whole -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_whole_files(tmp_path: Path, name: str) -> None:
    assert is_whole(str(save(tmp_path / name)))


@pytest.mark.parametrize("name", FORMATS)
def test_no_beginning_of_a_file_is_taken_for_the_whole(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / name)
    content = path.read_bytes()
    lengths = {0, 1, 2, 3, 7, 8, 9, len(content) // 2, len(content) - 20, len(content) - 1}
    for length in sorted(lengths):
        path.write_bytes(content[:length])
        if name != "model.pkl" or not content[:length].endswith(b"."):
            assert not is_whole(str(path)), length


@pytest.mark.parametrize("name", FORMATS)
def test_a_half_written_one_gives_way_to_the_one_before(tmp_path: Path, name: str) -> None:
    suffix = Path(name).suffix
    save(tmp_path / f"model_1{suffix}", at=1000)
    torn = save(tmp_path / f"model_2{suffix}")
    torn.write_bytes(torn.read_bytes()[:-5])
    os.utime(torn, (2000, 2000))
    assert found(tmp_path, f"*{suffix}") == f"model_1{suffix}"


def test_an_empty_file_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.anything").touch()
    assert found(tmp_path, "*") is None


def test_an_unknown_format_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.xyz").write_bytes(b"PKW is a car, \x80")
    assert found(tmp_path, "*") == "model.xyz"


def test_an_empty_zip_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w"):
        pass
    path.write_bytes(b"PK\3\4" + path.read_bytes())
    assert not is_whole(str(path))


def test_what_old_torch_wrote_does_not_end_as_a_pickle(tmp_path: Path) -> None:
    """torch.save before 1.6: pickled magic number, version and objects, then raw numbers."""
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    path = tmp_path / "model.pth"
    path.write_bytes(magic + pickle.dumps(1001, protocol=2) + b"\x00\x01\x02")
    assert is_whole(str(path))


def test_several_pickles_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps([1] * 100) + pickle.dumps({"a": 2}))
    assert is_whole(str(path))


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b"null",
        b'{"a": 1}',
        b'{"a": {"data_offsets": [0, "x"]}}',
        b"\xff\xff",
        b"[" * 9999,
    ],
)
def test_a_safetensors_header_that_makes_no_sense(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert not is_whole(str(path))


def test_a_safetensors_file_with_too_much_at_its_end(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes() + b"x")
    assert not is_whole(str(path))


def test_json_that_is_nested_too_deep_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("[" * 200_000 + "]" * 200_000)
    assert not is_whole(str(path))


# -- folders ------------------------------------------------------------------------------------


def test_a_folder_is_whole_if_its_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-500"
    save(folder / "model.safetensors")
    save(folder / "global/optimizer.pt")
    (folder / "DONE").touch()
    (folder / "gone").symlink_to("nowhere")
    save(folder / "old.pt.tmp").write_bytes(b"PK\3\4 torn")
    assert found(tmp_path, "checkpoint-*") == "checkpoint-500"


@pytest.mark.parametrize("content", [b"", b"PK\3\4 torn"])
def test_a_folder_with_a_torn_file_is_not(tmp_path: Path, content: bytes) -> None:
    save(tmp_path / "checkpoint-500/model.safetensors", at=1000)
    save(tmp_path / "checkpoint-1000/model.safetensors", at=2000)
    (tmp_path / "checkpoint-1000/optimizer.pt").write_bytes(content)
    assert found(tmp_path, "checkpoint-*") == "checkpoint-500"


def test_a_folder_without_content_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-2/empty/below").mkdir(parents=True)
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3/STARTED").touch()
    assert found(tmp_path, "checkpoint-*") is None


def test_a_folder_is_as_new_as_its_newest_file(tmp_path: Path) -> None:
    """A trainer that overwrites files in its "last" folder does not change the folder's time."""
    last = save(tmp_path / "last/model.pt", at=1000)
    save(tmp_path / "best/model.pt", at=2000)
    before = newest(str(tmp_path), {"checkpoint": "last"})
    assert isinstance(before, Checkpoint)
    assert found(tmp_path, "*") == "best"
    save(last, at=3000)
    assert not before.same(newest(str(tmp_path), {"checkpoint": "last"}))
    assert found(tmp_path, "*") == "last"


NUMBER = r"_ep_(\d+)_"


def test_by_number_within_the_run_that_was_written_to_last(tmp_path: Path) -> None:
    """A copy, or a slow disk, makes an earlier checkpoint look newer."""
    save(tmp_path / "one/nn/last_ep_900_rew_1.pt", 50)
    save(tmp_path / "two/nn/last_ep_1000_rew_1.pt", 100)
    save(tmp_path / "two/nn/last_ep_950_rew_1.pt", 200)
    cut = save(tmp_path / "two/nn/last_ep_1050_rew_1.pt", 150)
    cut.write_bytes(cut.read_bytes()[:-100])
    pattern = "**/nn/last_*.pt"
    assert found(tmp_path, pattern) == "two/nn/last_ep_950_rew_1.pt"
    chosen = newest(str(tmp_path), {"checkpoint": pattern, "number": NUMBER})
    assert chosen is not None
    assert chosen.path.endswith("two/nn/last_ep_1000_rew_1.pt")


def test_a_run_without_a_whole_one_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "one/last_ep_10_.pt", 50)
    save(tmp_path / "two/last_ep_20_.pt", 100).write_bytes(b"")
    chosen = newest(str(tmp_path), {"checkpoint": "*/last_*.pt", "number": NUMBER})
    assert chosen is not None
    assert chosen.path.endswith("one/last_ep_10_.pt")


def left_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(
    st.lists(st.booleans(), max_size=8),
    st.integers(1, 5),
)
def test_what_is_kept(whole: list[bool], keep: int) -> None:
    """The newest valid one, whatever is newer, and as many as asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, is_good in enumerate(whole):
            path = save(folder / f"model_{number}.pt", 100 + number)
            if not is_good:
                path.write_bytes(path.read_bytes()[:-10])
                os.utime(path, (100 + number, 100 + number))
        before = left_of(folder)
        valid = newest(name, {"checkpoint": "*.pt"})
        prune(name, {"checkpoint": "*.pt", "keep": keep})
        left = left_of(folder)
        after = newest(name, {"checkpoint": "*.pt"})
        if valid is None:
            assert left == before
            return
        assert after is not None
        assert after.same(valid)
        position = before.index(os.path.basename(valid.path))
        assert left == before[max(position - keep + 1, 0) :]


def test_nothing_is_removed_elsewhere(tmp_path: Path) -> None:
    """A link to somebody's models is not the job's to clear."""
    for number in range(3):
        save(tmp_path / f"models/model_{number}.pt", number)
        save(tmp_path / f"outputs/model_{number}.pt", 10 + number)
    (tmp_path / "outputs/zoo").symlink_to(tmp_path / "models")
    prune(str(tmp_path / "outputs"), {"checkpoint": "**/*.pt", "keep": 1})
    assert len(left_of(tmp_path / "models")) == 3
    assert left_of(tmp_path / "outputs") == ["model_2.pt", "zoo"]


def fill(folder: Path, at: float, *names: str) -> Path:
    for name in names:
        save(folder / name, at)
    return folder


PARTS = ("model.bin", "rank_0/optimizer.pt", "rank_1/optimizer.pt", ".metadata")


def test_a_folder_that_lacks_what_those_before_it_have(tmp_path: Path) -> None:
    fill(tmp_path / "ck_1", 1000, *PARTS)
    fill(tmp_path / "ck_2", 2000, "model.bin")
    assert found(tmp_path, "ck_*") == "ck_1"
    fill(tmp_path / "ck_2", 2001, "rank_0/optimizer.pt", ".metadata")  # of fewer ranks
    assert found(tmp_path, "ck_*") == "ck_2"


def test_what_only_some_of_them_have_is_not_missed(tmp_path: Path) -> None:
    fill(tmp_path / "ck_1", 1000, *PARTS, "best.pt")
    fill(tmp_path / "ck_2", 2000, *PARTS)
    assert found(tmp_path, "ck_*") == "ck_1"  # it may be about to come
    fill(tmp_path / "ck_3", 3000, *PARTS)
    assert found(tmp_path, "ck_*") == "ck_3"


def test_what_is_no_content_is_not_missed(tmp_path: Path) -> None:
    fill(tmp_path / "ck_1", 1000, *PARTS, "events.out.tfevents.17.node-a", "notes.txt")
    fill(tmp_path / "ck_2", 2000, *PARTS)
    assert found(tmp_path, "ck_*") == "ck_2"


def test_of_those_that_do_not_tell_their_end_one_more_stays(tmp_path: Path) -> None:
    for step in range(1, 5):
        fill(tmp_path / f"ck_{step}", step * 1000, *PARTS)
    prune(str(tmp_path), {"checkpoint": "ck_*", "keep": 1})
    assert sorted(os.listdir(tmp_path)) == ["ck_3", "ck_4"]


def test_without_a_number_to_keep_all_stay(tmp_path: Path) -> None:
    save(tmp_path / "a.pt")
    save(tmp_path / "b.pt")
    prune(str(tmp_path), {"checkpoint": "*.pt", "keep": None})
    assert left_of(tmp_path) == ["a.pt", "b.pt"]


PAIRED = {"checkpoint": "**/m_*.zip", "number": r"m_(\d+)", "partner": "m_norm_{number}.pkl"}


def save_pair(folder: Path, number: int, partner: bytes | None = b"\x80\4N.") -> None:
    folder.mkdir(exist_ok=True)
    save(folder / f"m_{number}.zip", at=1000.0 + number)
    if partner is not None:
        (folder / f"m_norm_{number}.pkl").write_bytes(partner)


@pytest.mark.parametrize("torn", [None, b"", b"\x80\4N"])
def test_where_partners_are_the_habit_one_without_is_passed_over(
    tmp_path: Path, torn: bytes | None
) -> None:
    """Also in a folder that has none yet: the habit is the trainer's."""
    save_pair(tmp_path / "a", 10)
    save_pair(tmp_path / "a", 20, torn)
    save_pair(tmp_path / "b", 50, torn)
    chosen = newest(str(tmp_path), PAIRED)
    assert chosen is not None
    assert chosen.path.endswith("a/m_10.zip")


def test_where_nobody_has_a_partner_none_is_missed(tmp_path: Path) -> None:
    save_pair(tmp_path, 10, None)
    save_pair(tmp_path, 20, None)
    chosen = newest(str(tmp_path), PAIRED)
    assert chosen is not None
    assert chosen.path.endswith("m_20.zip")


def test_partners_leave_with_their_checkpoints(tmp_path: Path) -> None:
    for number in (10, 20, 30):
        save_pair(tmp_path, number)
    save_pair(tmp_path, 40, None)
    prune(str(tmp_path), {**PAIRED, "keep": 1})
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["m_30.zip", "m_40.zip", "m_norm_30.pkl"]


def test_which_formats_tell_their_end(tmp_path: Path) -> None:
    save(tmp_path / "model.pt")
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "state.pkl").write_bytes(b"\x80\4N.")
    told = [tells_its_end(str(tmp_path / name)) for name in ("model.pt", "state.json")]
    assert told == [True, True]
    for name in ("state.pkl", ".", "gone.pt"):
        assert not tells_its_end(str(tmp_path / name))
