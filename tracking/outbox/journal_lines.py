"""Check the lines of a journal that another process left: they are untrusted input."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line
from featurelab.tracking.outbox.journal import Journal
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.addresses import RUN_ID

Scalar = str | bool | int | float | None
Name = Annotated[str, Field(max_length=500)]


class Dataset(BaseModel):
    """What `Recorder.dataset` writes."""

    model_config = ConfigDict(extra="forbid")

    name: str
    digest: str = Field(max_length=36)
    profile: dict[str, Any]
    context: str


class JournalLine(BaseModel):
    """Any of the lines that `featurelab.tracking.outbox.journal` lists."""

    model_config = ConfigDict(extra="forbid")

    uri: str | None = None
    run_id: str | None = None
    experiment: str | None = None
    t: int | None = None
    s: int | None = None
    m: dict[Name, float] = Field(default_factory=dict)
    tags: dict[Name, Scalar] = Field(default_factory=dict)
    params: dict[Name, Scalar] = Field(default_factory=dict)
    dataset: Dataset | None = None
    discard: Annotated[str, AfterValidator(artifacts.checked)] | None = None
    end: Literal["FINISHED", "FAILED", "KILLED"] | None = None
    sent: int | None = None
    attempt: int | None = Field(None, ge=1)


def store_address(journal: Journal) -> str:
    """Return the address of the store that a journal is for, after checking that a recorder can have written each line.

    Empty if the journal has no header, as on a disk that was full when it was opened. Raises StoreError for an invalid
    line, for a line of another run and for a file name that is not a run id.
    """
    uri: str | None = None
    for byte, entry in journal.lines():
        try:
            checked = JournalLine.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            reason = line(f"{place}: {first['msg']}", 200)
            raise StoreError(f"invalid journal line before byte {byte}: {reason}") from None
        if (checked.m and (checked.t is None or checked.s is None)) or (checked.end and checked.t is None):
            raise StoreError(f"invalid journal line before byte {byte}: it has no time or no step")
        uri = uri or checked.uri
        if checked.run_id not in (None, journal.path.stem):
            raise StoreError(f"the journal is of another run: {line(str(checked.run_id), 80)}")
    if not RUN_ID.fullmatch(journal.path.stem):
        raise StoreError(f"the journal's file name is not a run id: {line(journal.path.stem, 80)}")
    return uri or ""
