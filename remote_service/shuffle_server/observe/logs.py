"""The server's log: one line per record on standard error, as text for people or as JSON for a log store."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from contextlib import nullcontext
from typing import Any, TextIO

from shuffle_api.errors import InvalidArgument
from shuffle_server.observe.log_context import FIELDS, current_fields

# What would begin a new line, or play with a terminal: a text from outside must not look like a record of ours.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160), 0x2028, 0x2029)}
_CONTROL |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_WORD = re.compile(r"[\w.:/%@+-]+", re.ASCII)


def set_up_logging(form: str, level: str, stream: TextIO | None = None, *, file: str = "") -> None:
    """Log everything of this process from `level` on; `form` is "text" or "json". Replaces what was set up before.

    :param file: to append to, instead of writing to a stream.
    :raises InvalidArgument: it cannot be written.
    """
    handler = _LogFile(file) if file else logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _thread_died


class _LogFile(logging.FileHandler):
    """A file that other programs move away."""

    def __init__(self, path: str) -> None:
        try:
            super().__init__(path, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"the log file {path} cannot be written: {error.strerror}", remedy="give another --log-file"
            ) from None

    def reopen(self) -> None:
        """Go on in a file of the same name: a new one where the former was moved away."""
        with self.lock or nullcontext():
            try:
                stream = self._open()
            except OSError as error:
                logging.getLogger(__name__).error("the log file cannot be opened again: %s", error)
                return
            if (former := self.setStream(stream)) is not None:
                former.close()


def reopen_log() -> None:
    """Begin the log's file anew, if the log goes to a file."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _LogFile):
            handler.reopen()
            logging.getLogger(__name__).info("the log file was opened again")


class TextFormatter(logging.Formatter):
    """`2026-11-21T09:41:07.123Z INFO logger [app=etl shuffle=3]: message`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        head = f"{_time(record)} {record.levelname} {record.name}{f' [{fields}]' if fields else ''}"
        line = f"{head}: {record.getMessage()}".translate(_CONTROL)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, thread, message, the fields that apply, exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def _fields(record: logging.LogRecord) -> dict[str, str | int]:
    """The fields of the thread that made the record: a handler runs in it."""
    now = current_fields()
    return {name: now[name] for name in FIELDS if name in now}


def _shown(value: str | int) -> str:
    """A value in a line of text: quoted unless it is one plain word."""
    text = str(value)
    return text if _WORD.fullmatch(text) else json.dumps(text)


def _time(record: logging.LogRecord) -> str:
    """RFC 3339, UTC, milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _thread_died(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread is not None else "unknown"
    if args.exc_value is not None:
        trace = (args.exc_type, args.exc_value, args.exc_traceback)
        logging.getLogger(__name__).critical("thread %s ended with an error", name, exc_info=trace)
