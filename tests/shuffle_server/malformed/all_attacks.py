"""The attacks by name, and running one of them for a number of messages."""

from __future__ import annotations

from shuffle_api.errors import ShuffleError
from tests.shuffle_server.malformed.attack import Attack, Target, Untyped
from tests.shuffle_server.malformed.control_attack import ControlAttack
from tests.shuffle_server.malformed.get_attack import GetAttack
from tests.shuffle_server.malformed.ipc_attack import IpcAttack
from tests.shuffle_server.malformed.put_attack import PutAttack
from tests.shuffle_server.malformed.socket_attack import SocketAttack

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack for attack in (ControlAttack, GetAttack, PutAttack, IpcAttack, SocketAttack)
}


def run(name: str, target: Target, messages: int, first_seed: int = 0) -> int:
    """Send at least so many messages, seed after seed; how many it was. Raises Untyped naming the seed."""
    attack = ATTACKS[name](target)
    sent, seed = 0, first_seed
    try:
        while sent < messages:
            try:
                sent += attack.send(seed)
            except (Untyped, OSError, ShuffleError) as error:
                again = f"python -m tests.shuffle_server.malformed {name} {seed}"
                raise Untyped(f"{name}, seed {seed}: {error} (alone: {again})") from error
            seed += 1
    finally:
        attack.close()
    return sent
