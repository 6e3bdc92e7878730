"""What may happen to the file of a committed map output."""

from pathlib import Path


def delete(output: Path) -> None:
    output.unlink()


def flip_a_bit(output: Path, share: float = 0.25) -> None:
    """So far into the file; in a payload, as long as that is not near the end, where the index lies."""
    data = bytearray(output.read_bytes())
    data[int(len(data) * share)] ^= 0x10
    output.write_bytes(data)


def cut_in_half(output: Path) -> None:
    with output.open("r+b") as file:
        file.truncate(output.stat().st_size // 2)
