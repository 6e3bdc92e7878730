"""Tasks that wait for a disk, and those that give them, which do not."""

import threading

from shuffle_api.caretaker import Caretaker

SOON = 60.0


def test_what_hangs_is_left_to_itself_and_all_is_done_when_it_goes_on() -> None:
    caretaker, disk, done = Caretaker("test"), threading.Event(), list[int]()
    caretaker.start()
    caretaker.later(lambda: disk.wait(SOON))
    assert not caretaker.stop(0.05)
    caretaker.later(lambda: done.append(1))
    assert done == []
    disk.set()
    assert caretaker.stop(SOON)
    assert done == [1]


def test_no_giver_waits_for_the_disk_after_the_end_either() -> None:
    caretaker, disk, done = Caretaker("test"), threading.Event(), list[int]()
    caretaker.start()
    assert caretaker.stop(SOON)
    caretaker.later(lambda: disk.wait(SOON))
    caretaker.later(lambda: done.append(1))
    disk.set()
    assert caretaker.wait(SOON)
    assert done == [1]


def test_a_task_with_a_name_waits_once() -> None:
    caretaker, disk, done = Caretaker("test"), threading.Event(), list[int]()
    caretaker.start()
    caretaker.later(lambda: disk.wait(SOON))
    for n in range(3):
        caretaker.later(lambda n=n: done.append(n), once="tidy")  # type: ignore[misc]
    disk.set()
    assert caretaker.stop(SOON)
    assert done == [0]
