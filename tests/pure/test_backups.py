"""Backups as directories: each byte is vouched for, keys are sealed, and old backups are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import ENOSPC
from pathlib import Path

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from hypothesis import given
from hypothesis import strategies as st

from convserver import configuration
from convserver.backups import directories, manifest, restoring, sealed_key, secret_keys
from convserver.backups.failures import BackupError
from convserver.backups.manifest import DATABASE, Manifest
from convserver.backups.sealed_key import Keys

PASSPHRASE = "a long passphrase"
FILES = {DATABASE[connection.vendor]: b"all that was said", sealed_key.NAME: b"{}"}


def written(directory: Path, *, migrations: Sequence[str] = ("app.0001",)) -> Manifest:
    """Write a small backup, of the engine that the tests run on."""
    directory.mkdir(exist_ok=True)
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    made = Manifest(
        version="1",
        engine=connection.vendor,
        made_at="2026-11-25T12:00:00+00:00",
        installation="0",
        migrations=list(migrations),
        counts={"table": 1},
        heads="0",
        files={name: manifest.described(directory / name) for name in FILES},
    )
    manifest.write(made, directory)
    return made


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert written(tmp_path) == manifest.read(tmp_path)


def replaced() -> list[str]:
    """Return the migrations of the first application that another one replaces, in order."""
    first = MigrationLoader(None).disk_migrations["conversations", "0001_squashed_0016_purges"]
    return [".".join(each) for each in first.replaces]


def test_a_backup_from_before_its_migrations_were_replaced_can_be_restored(tmp_path: Path) -> None:
    made = written(tmp_path, migrations=replaced())
    assert restoring.readable(tmp_path) == made


@pytest.mark.parametrize(
    ("migrations", "reason"),
    [
        (replaced()[:3], "stopped at the migration conversations.0003_top_level_index"),
        (
            [*replaced(), "conversations.9999_later"],
            "it has conversations.9999_later",
        ),
    ],
)
def test_a_backup_from_which_no_migration_goes_on_is_refused(
    tmp_path: Path, migrations: list[str], reason: str
) -> None:
    written(tmp_path, migrations=migrations)
    with pytest.raises(BackupError, match=reason):
        restoring.readable(tmp_path)


@given(data=st.data())
def test_a_backup_of_which_any_byte_was_changed_is_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp() / "flipped"
    written(directory)
    path = directory / data.draw(st.sampled_from([*FILES, manifest.NAME, manifest.SUM]))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(BackupError, match="choose another backup"):
        manifest.read(directory)


@pytest.mark.parametrize("name", [*FILES, manifest.NAME, manifest.SUM])
def test_a_backup_that_lacks_a_file_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    written(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BackupError, match=f"{name}.*choose another one"):
        manifest.read(tmp_path)


def test_a_manifest_that_names_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    made = written(tmp_path)
    made.files["../outside"] = made.files["database.sqlite3"]
    manifest.write(made, tmp_path)
    with pytest.raises(BackupError, match="outside"):
        manifest.read(tmp_path)


def test_a_sealed_key_is_opened_by_its_passphrase_alone(tmp_path: Path) -> None:
    keys = Keys("the newest secret key", ("an earlier one",))
    sealed_key.seal(keys, PASSPHRASE, tmp_path)
    assert keys.newest not in (tmp_path / sealed_key.NAME).read_text()
    assert sealed_key.unseal(tmp_path, PASSPHRASE) == keys
    with pytest.raises(BackupError, match="does not open"):
        sealed_key.unseal(tmp_path, f"{PASSPHRASE}!")
    with pytest.raises(BackupError, match="at least 12"):
        sealed_key.seal(keys, "too short", tmp_path)


def _fail_halfway(directory: Path) -> None:
    with directories.new_in(directory, "convserver-1") as draft:
        (draft.path / "file").write_text("half")
        raise OSError(ENOSPC, "No space left on device")


def test_a_directory_has_its_name_once_it_is_complete_and_nothing_is_left_of_a_failure(
    tmp_path: Path,
) -> None:
    with pytest.raises(BackupError, match="No space"):
        _fail_halfway(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with directories.new_in(tmp_path, "convserver-1") as draft:
        (draft.path / "file").write_text("all")
        assert not (tmp_path / "convserver-1").exists()
    assert draft.path == tmp_path / "convserver-1"
    assert [path.stat().st_mode & 0o777 for path in (draft.path, draft.path / "file")] == [0o700, 0o600]


def test_what_a_killed_backup_has_left_is_removed_and_one_that_is_being_written_stays(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".convserver-1.0000.unfinished"
    left.mkdir()
    with directories.new_in(tmp_path, "convserver-2") as first:
        assert not left.exists()
        with directories.new_in(tmp_path, "convserver-2"):
            assert first.path.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["convserver-2", "convserver-2-2"]


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[int], list[str]]:
    """Write four backups and something else, keep some of them, and return what is there."""
    for name in ("convserver-20261101T000000Z", *(f"convserver-2026112{day}T000000Z" for day in range(3))):
        written(tmp_path / name)
    (tmp_path / "convserver-20250101T000000Z").mkdir()  # without a manifest: nobody's backup
    (tmp_path / "something else").mkdir()

    def keep(count: int) -> list[str]:
        directories.keep_newest(tmp_path, count)
        return sorted(path.name for path in tmp_path.iterdir() if (path / manifest.NAME).exists())

    return keep


def test_the_newest_backups_are_kept(kept: Callable[[int], list[str]], tmp_path: Path) -> None:
    assert kept(2) == ["convserver-20261121T000000Z", "convserver-20261122T000000Z"]
    assert {"something else", "convserver-20250101T000000Z"} <= {path.name for path in tmp_path.iterdir()}


def test_keys_that_come_back_are_in_files_of_their_own_and_in_nothing_that_is_said(tmp_path: Path) -> None:
    configured = configuration.read({"CONVSERVER_DATA_DIR": str(tmp_path)})
    replaced = (tmp_path / "secret_key").read_text()
    said = secret_keys.put_back(configured, Keys("the newest secret key", ("former one", "former two")))
    written = {path.name.partition(".")[2].partition("-")[0]: path for path in tmp_path.glob("secret_key*")}
    assert {name: path.read_text() for name, path in written.items()} == {
        "": "the newest secret key",
        "before": replaced,
        "earlier": "former one,former two",
    }
    assert {path.stat().st_mode & 0o777 for path in written.values()} == {0o600}
    assert str(written["earlier"]) in said
    assert "former one" not in said
