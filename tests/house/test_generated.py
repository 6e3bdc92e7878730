"""What is generated and committed is what the generator writes today."""

import filecmp
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROTO = Path("shuffle_transport/proto")
GENERATED = ("flight_shuffle_pb2.py", "flight_shuffle_pb2.pyi", "flight_shuffle_pb2_grpc.py")


def test_protobuf_code_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "generate-proto", tmp_path], check=True, timeout=60)
    _, changed, missing = filecmp.cmpfiles(ROOT / "transport" / PROTO, tmp_path / PROTO, GENERATED, shallow=False)
    assert not changed + missing, f"run scripts/generate-proto and commit: {', '.join(changed + missing)}"
