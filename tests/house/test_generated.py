"""What is generated and committed is what the generator writes today."""

import filecmp
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROTOS = {"transport": "shuffle_transport/proto/flight_shuffle", "remote_service": "shuffle_server/proto/registry"}
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def test_protobuf_code_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "generate-proto", tmp_path], check=True, timeout=240)
    for root, stem in PROTOS.items():
        names = [stem + suffix for suffix in SUFFIXES]
        _, changed, missing = filecmp.cmpfiles(ROOT / root, tmp_path, names, shallow=False)
        assert not changed + missing, f"run scripts/generate-proto and commit: {', '.join(changed + missing)}"
