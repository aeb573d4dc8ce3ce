"""The faults, grouped by what they hit."""

from tests.chaos.faults import answers, disks, journals, machinery, rivals, signals, stored, trials
from tests.chaos.faults.catalogue import CATALOGUE, Fault, Impossible, Victim

__all__ = ["CATALOGUE", "Fault", "Impossible", "Victim"]

_ = (answers, disks, journals, machinery, rivals, signals, stored, trials)  # importing a file lists its faults
