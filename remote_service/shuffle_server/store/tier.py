"""An object store behind the disks: whole files of cold map outputs, fetched again when somebody reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId

PIECE = 4 << 20


class Tier:
    """Objects `PREFIX/APP/SHUFFLE/MAP.ATTEMPT` of one worker, through `pyarrow.fs`. Thread-safe.

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
            if self._fs.type_name not in ("s3", "gcs"):  # those have no directories
                self._fs.create_dir(target.rpartition("/")[0])
            with path.open("rb") as source, self._fs.open_output_stream(target) as sink:
                shutil.copyfileobj(source, sink, PIECE)
        except FileNotFoundError:
            if not path.exists():
                raise
            raise StorageFailed(f"object store: there is no bucket for {target}", remedy="make it") from None
        except (pa.ArrowException, OSError) as error:
            raise self._failed(target, error) from error

    def get(self, shuffle: ShuffleId, output: MapAttempt, path: Path) -> None:
        """Copy an object to a file. Raises FileNotFoundError when there is none, StorageFailed."""
        source_path = self._path(shuffle, output)
        try:
            with self._fs.open_input_stream(source_path) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, PIECE)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise self._failed(source_path, error) from error

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
        """All objects of this worker. Raises StorageFailed."""
        try:
            found = self._fs.get_file_info(pafs.FileSelector(self._root, allow_not_found=True, recursive=True))
        except (pa.ArrowException, OSError) as error:
            raise self._failed(self._root, error) from error
        objects = []
        for info in found:
            if info.type == pafs.FileType.File:
                app, shuffle, name = info.path.split("/")[-3:]
                map_id, _, attempt = name.partition(".")
                objects.append((ShuffleId(app, int(shuffle)), MapAttempt(int(map_id), int(attempt))))
        return objects

    def _path(self, shuffle: ShuffleId, output: MapAttempt) -> str:
        return f"{self._root}/{shuffle.app}/{shuffle.shuffle}/{output.map}.{output.attempt}"

    def _failed(self, path: str, error: Exception) -> StorageFailed:
        return StorageFailed(
            f"object store, {path}: {error}", remedy="try again; check the object store and this worker's access to it"
        )
