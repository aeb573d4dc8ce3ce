from .ansatz import AnsatzProbe as AnsatzProbe
from .ansatz import SpectrumProbe as SpectrumProbe
from .loss import LossProbe as LossProbe
from .probe import Measure as Measure
from .probe import Probe as Probe

__all__ = ["AnsatzProbe", "LossProbe", "Measure", "Probe", "SpectrumProbe"]
