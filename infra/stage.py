"""Stages: what may be lost and what may not."""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    DEV = "dev"
    PROD = "prod"

    @classmethod
    def parse(cls, value: object) -> Stage:
        try:
            return cls(value)
        except ValueError:
            wanted = " or ".join(stage.value for stage in cls)
            raise SystemExit(
                f"stage must be {wanted}, not {value!r}: cdk synth -c stage=dev"
            ) from None

    @property
    def keeps_data(self) -> bool:
        """Whether `cdk destroy` must leave the data alone."""
        return self is Stage.PROD
