from . import artifacts as artifacts
from . import connect as connect
from . import earlier as earlier
from . import errors as errors
from . import journal as journal
from . import outbox as outbox
from . import provenance as provenance
from . import query as query
from . import record as record
from . import report as report
from . import store as store
from .connect import attach as attach
from .errors import RunNotFound as RunNotFound
from .errors import StoreError as StoreError
from .null import NullRecorder as NullRecorder
from .outbox import sync as sync
from .record import Diverged as Diverged
from .record import Recorder as Recorder
from .store import Store as Store

__all__ = [
    "Diverged",
    "NullRecorder",
    "Recorder",
    "RunNotFound",
    "Store",
    "StoreError",
    "artifacts",
    "attach",
    "connect",
    "earlier",
    "errors",
    "journal",
    "outbox",
    "provenance",
    "query",
    "record",
    "report",
    "store",
    "sync",
]
