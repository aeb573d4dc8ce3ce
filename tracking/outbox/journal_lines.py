"""The lines of a journal as another process left them: input like any other, checked before it is acted on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line
from featurelab.tracking.outbox.journal import Journal
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.store import RUN_ID

Scalar = str | bool | int | float | None
Name = Annotated[str, Field(max_length=500)]


class Dataset(BaseModel):
    """What `Recorder.dataset` writes down."""

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


def checked(journal: Journal) -> str:
    """The address of the store that a journal is for, if all of it is as a recorder writes it. Raises StoreError.

    It is empty where the journal has no header, as on a disk that was full when it was opened.
    """
    uri: str | None = None
    for byte, entry in journal.lines():
        try:
            found = JournalLine.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            said = line(f"{place}: {first['msg']}", 200)
            raise StoreError(f"the line before byte {byte} is no recorder's: {said}") from None
        if (found.m and (found.t is None or found.s is None)) or (found.end and found.t is None):
            raise StoreError(f"the line before byte {byte} is no recorder's: it has no time")
        uri = uri or found.uri
        if found.run_id not in (None, journal.path.stem):
            raise StoreError(f"it is of another run: {line(str(found.run_id), 80)}")
    if not RUN_ID.fullmatch(journal.path.stem):
        raise StoreError("its name is not that of a run")
    return uri or ""
