"""docs/spark.md quotes messages and options as they are."""

import re
import zipfile
from pathlib import Path

import grpc
import pyspark

from shuffle_plugins.spark import spark_conf
from tools import options_doc

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "spark.md").read_text()
SOURCES = (
    "plugins/spark/src",
    "plugins/shuffle_plugins",
    "shuffle_api/shuffle_api",
    "transport/shuffle_transport",
    "remote_service/shuffle_server",
)
OF_OTHERS = (
    "ClassNotFoundException: ",
    "Dynamic allocation of",
    "You are enabling both",
    "Task serialization failed",
    "FetchFailed",
    "JAVA_GATEWAY_EXITED",
    "Epoll1Poller:",  # gRPC's
)


def messages() -> list[str]:
    """The quotations in the first column of the tables below Troubleshooting."""
    part = TEXT.partition("## Troubleshooting")[2].partition("## Coming from")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return [quoted for row in rows for quoted in re.findall(r"`([^`]+)`", row)]


def source() -> str:
    """All the code, with the pieces of its texts joined: a message may be written on several lines."""
    files = [path for name in SOURCES for path in (ROOT / name).rglob("*") if path.suffix in (".java", ".py", ".proto")]
    return re.sub(r'"\s*\+?\s*f?"', "", "\n".join(path.read_text() for path in files))


def test_every_message_is_one_of_the_code() -> None:
    code = source()
    own = [message for message in messages() if not message.startswith(OF_OTHERS)]
    assert len(own) > 35
    pieces = [piece.strip() for message in own for piece in message.split("…")]
    assert [piece for piece in pieces if piece not in code] == []


def test_messages_of_spark_are_those_of_the_installed_one() -> None:
    [core] = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    said = [message for message in messages() if message.startswith(("Dynamic allocation", "You are enabling"))]
    assert len(said) == 2
    with zipfile.ZipFile(core) as jar:
        allocation = jar.read("org/apache/spark/ExecutorAllocationManager.class")
        scheduler = jar.read("org/apache/spark/scheduler/DAGScheduler.class")
    assert [message for message in said if message.encode() not in allocation] == []
    assert b"Task serialization failed: " in scheduler


def test_messages_of_pyspark_and_grpc_are_those_of_the_installed_ones() -> None:
    [of_grpc] = (message for message in messages() if message.startswith("Epoll1Poller"))
    [library] = (Path(grpc.__file__).parent / "_cython").glob("cygrpc*.so")
    code = library.read_bytes()
    assert [piece for piece in of_grpc.split("…") if piece.encode() not in code] == []
    assert "JAVA_GATEWAY_EXITED" in messages()
    assert "JAVA_GATEWAY_EXITED" in (Path(pyspark.__file__).parent / "errors" / "error-conditions.json").read_text()


def test_every_option_exists() -> None:
    documented = options_doc.document()
    named = set(re.findall(r"spark\.shuffle\.flight\.[a-z][a-zA-Z.]*[a-zA-Z]", TEXT))
    flags = set(re.findall(r"`(--[a-z-]+)[ `]", TEXT)) - {"--packages", "--deploy-mode", "--files"}
    assert len(named) >= 4
    assert len(flags) >= 6
    assert [name for name in named if f"`{name}`" not in documented and name != "spark.shuffle.flight.tls"] == []
    assert [flag for flag in flags if f"`{flag}`" not in documented] == []


def test_settings_are_what_the_command_prints() -> None:
    block = TEXT.partition("```properties\n")[2].partition("```")[0]
    given = {line.split()[0]: line.split()[1] for line in block.splitlines()}
    printed = spark_conf("shuffle.example.org:9110")
    assert list(given) == list(printed)
    assert Path(given.pop("spark.jars")).name == Path(printed.pop("spark.jars")).name
    assert given == printed
