"""An object store behind the disks: whole files of cold map outputs, fetched again when somebody reads them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.paths import folder_of, shuffle_of

PIECE = 4 << 20
MARKER = ".flight-shuffle"  # no application's name
_OBJECT = re.compile(r"(\d{1,19})\.(\d{1,19})", re.ASCII)


class ObjectStore:
    """Objects `PREFIX/RUN/SHUFFLE.GENERATION/MAP.ATTEMPT` of one worker, through `pyarrow.fs`. Thread-safe.

    Beside them is an empty marker. Without it the file system is not mounted, or the bucket is another one: what is not
    found there is not lost.

    :param uri: where, as `pyarrow.fs.FileSystem.from_uri` takes it: `s3://bucket/path?region=...`, `gs://`, `hdfs://`.
    :param worker: its name, a part of the prefix: several workers may share a bucket.
    :raises InvalidArgument: no such kind of file system, or it does not say where.
    """

    def __init__(self, uri: str, worker: str) -> None:
        try:
            self._fs, root = pafs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise InvalidArgument(  # the URI may have credentials in it
                f"--tier: {str(error).replace(uri, '...')}",
                remedy="write for example s3://bucket/path?region=eu-west-1",
            ) from None
        self._root = f"{root.rstrip('/')}/{worker}"

    def put(self, shuffle: ShuffleId, output: MapAttempt, path: Path) -> None:
        """Copy a file; it is there whole when this returns. Raises StorageFailed, FileNotFoundError for the file."""
        target = self._path(shuffle, output)
        try:
            self._make_directory(target)
            with path.open("rb") as source, self._fs.open_output_stream(target) as sink:
                shutil.copyfileobj(source, sink, PIECE)
        except FileNotFoundError:
            if not path.exists():
                raise
            raise StorageFailed(f"object store: there is no bucket for {target}", remedy="make it") from None
        except (pa.ArrowException, OSError) as error:
            raise self._failed(target, error) from error

    def get(self, shuffle: ShuffleId, output: MapAttempt, path: Path) -> bool:
        """Copy an object to a file; False when there is none. Raises StorageFailed, and OSError for the file."""
        name = self._path(shuffle, output)
        source = self._open(name)
        if source is None:
            self.check_marked()
            source = self._open(name)  # once more: it may have been mounted between the two
        if source is None:
            return False
        with source, path.open("wb") as sink:
            while piece := self._read(source, name):
                sink.write(piece)
        return True

    def marked(self) -> bool:
        """Whether the marker is there. Raises StorageFailed."""
        path = f"{self._root}/{MARKER}"
        try:
            return bool(self._fs.get_file_info(path).type == pafs.FileType.File)
        except (pa.ArrowException, OSError) as error:
            raise self._failed(path, error) from error

    def check_marked(self) -> None:
        """:raises StorageFailed: this is not where the objects were put, or it does not answer."""
        if not self.marked():
            raise StorageFailed(
                f"object store: there is no {self._root}/{MARKER}, so this is not where cold outputs were put",
                remedy="mount it, or give the last --tier; if the objects are gone for good, make this file, empty",
            )

    def mark(self) -> None:
        """Make the marker. Raises StorageFailed."""
        path = f"{self._root}/{MARKER}"
        try:
            self._make_directory(path)
            self._fs.open_output_stream(path).close()
        except (pa.ArrowException, OSError) as error:
            raise self._failed(path, error) from error

    def remove(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Delete an object; fine when there is none. Raises StorageFailed."""
        path = self._path(shuffle, output)
        try:
            self._fs.delete_file(path)
        except FileNotFoundError:
            pass
        except (pa.ArrowException, OSError) as error:
            raise self._failed(path, error) from error

    def objects(self) -> list[tuple[ShuffleId, MapAttempt]]:
        """All objects of this worker; files with other names are passed over. Raises StorageFailed."""
        try:
            found = self._fs.get_file_info(pafs.FileSelector(self._root, allow_not_found=True, recursive=True))
        except (pa.ArrowException, OSError) as error:
            raise self._failed(self._root, error) from error
        return [named for info in found if info.type == pafs.FileType.File and (named := _named(info.path)) is not None]

    def _open(self, name: str) -> pa.NativeFile | None:
        try:
            return self._fs.open_input_stream(name)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            raise self._failed(name, error) from error

    def _read(self, source: pa.NativeFile, name: str) -> bytes:
        try:
            return bytes(source.read(PIECE))
        except (pa.ArrowException, OSError) as error:
            raise self._failed(name, error) from error

    def _make_directory(self, path: str) -> None:
        if self._fs.type_name not in ("s3", "gcs"):  # those have none
            self._fs.create_dir(path.rpartition("/")[0])

    def _path(self, shuffle: ShuffleId, output: MapAttempt) -> str:
        return f"{self._root}/{shuffle.app}/{folder_of(shuffle)}/{output.map}.{output.attempt}"

    def _failed(self, path: str, error: Exception) -> StorageFailed:
        return StorageFailed(
            f"object store, {path}: {error}", remedy="try again; check the object store and this worker's access to it"
        )


def _named(path: str) -> tuple[ShuffleId, MapAttempt] | None:
    """What an object holds; None when somebody else has put it there."""
    run, folder, name = ["", "", *path.split("/")][-3:]
    shuffle, numbers = shuffle_of(run, folder), _OBJECT.fullmatch(name)
    if shuffle is None or numbers is None:
        return None
    try:
        return shuffle, MapAttempt(int(numbers[1]), int(numbers[2]))
    except InvalidArgument:
        return None
