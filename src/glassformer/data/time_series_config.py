"""Which series is read, which part of it is for what, and how windows are cut."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from glassformer.config import Config

Missing = Literal["refuse", "previous"]


class SeriesDataConfig(Config):
    """A table of numbers over time: a CSV file (also ``.gz``) with a header, a line a moment, oldest first.

    ``split`` has the rows for training, validation and test, in order of time: counts, or shares when no number is
    above 1. Rows that remain are not used. Windows of validation and test have their futures in their own part; their
    contexts may begin in the part before, as in published figures (Zhou et al. 2021, arXiv:2012.07436).
    """

    file: str = Field(min_length=1, description="path of the table")
    date: str = Field(default="date", description="column of dates (ISO 8601) or numbers; empty: there is none")
    columns: list[str] = Field(default=[], description="variables, in order; none: all but the date")
    context: int = Field(default=336, gt=0, description="rows the model sees")
    horizon: int = Field(default=96, gt=0, description="rows it forecasts")
    split: tuple[
        Annotated[int | float, Field(gt=0)], Annotated[int | float, Field(ge=0)], Annotated[int | float, Field(ge=0)]
    ] = Field(default=(0.7, 0.1, 0.2), description="rows for training, validation, test; or shares")
    batch_size: int = Field(default=32, gt=0, description="windows in a batch, at most")
    missing: Missing = "refuse"
    """Empty cells, NaN and left-out dates: an error, or the ``previous`` value of the column again, which is read but
    neither learned nor scored as an answer."""

    @field_validator("missing", mode="before")
    @classmethod
    def _no_future(cls, missing: object) -> object:
        if missing == "interpolate":
            raise ValueError("a line to the next known value tells of the future; set it to previous")
        return missing

    @model_validator(mode="after")
    def _possible_split(self) -> Self:
        if self.in_shares and sum(self.split) > 1 + 1e-9:
            raise ValueError(f"the shares in split={list(self.split)} are more than 1 together; lower one")
        if not self.in_shares and any(rows != int(rows) for rows in self.split):
            raise ValueError(f"split={list(self.split)} mixes counts and shares; give whole numbers, or none above 1")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns={self.columns}: a column is named twice; name each once")
        if self.date and self.date in self.columns:
            raise ValueError(f"{self.date!r} is the date and in columns; leave it out of columns, or set date=''")
        return self

    @property
    def in_shares(self) -> bool:
        return max(self.split) <= 1
