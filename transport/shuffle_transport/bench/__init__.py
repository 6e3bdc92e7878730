"""``flight-shuffle bench transport``: the credit stream beside raw Flight and raw TCP, measured in turn.

docs/benchmarks/README.md says what each case does and what was measured. One process is this one, the other is a
child of it on the same machine (`peer.py`); both ends of every contender live in one module each: `tcp.py`, `raw.py`
(pyarrow's Flight as it is), `credit.py` (:mod:`shuffle_transport.channels`) and `remote.py` (`FlightClient`, what
the `remote` plugin uses).
"""
