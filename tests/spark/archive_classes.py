"""``python -m tests.spark.archive_classes``: writes `tests.class_archive.ARCHIVE` where there is none yet."""

import os
import tempfile
from pathlib import Path

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.class_archive import ARCHIVE, WRITE
from tests.conftest import JAVA_OPTIONS
from tests.spark import jobs
from tests.spark.server import Server


def write(archive: Path) -> None:
    """Run some jobs through the plugin and keep the classes that they loaded."""
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        scratch = Path(directory)
        new = scratch / archive.name
        os.environ["JDK_JAVA_OPTIONS"] = f"{JAVA_OPTIONS} {WRITE.format(archive=new)}"
        with Server(scratch) as server:
            conf = local_conf(scratch) | spark_conf(server.control, fallback="never")
            with SparkDriver(conf, scratch / "spark.log") as driver:
                for job in (jobs.reduce_by_key, *jobs.SQL_JOBS):
                    driver.call(job)
        new.rename(archive)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        write(ARCHIVE)
