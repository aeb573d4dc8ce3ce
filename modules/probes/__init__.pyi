from .alignment import AlignmentProbe as AlignmentProbe
from .alignment import CKAProbe as CKAProbe
from .ansatz import AnsatzProbe as AnsatzProbe
from .ansatz import SpectrumProbe as SpectrumProbe
from .collapse import AttributionProbe as AttributionProbe
from .collapse import CollapseProbe as CollapseProbe
from .collapse import DistanceProbe as DistanceProbe
from .collapse import GramProbe as GramProbe
from .features import FeatureProbe as FeatureProbe
from .loss import LossProbe as LossProbe
from .probe import Measure as Measure
from .probe import Probe as Probe
from .reference import ReferenceProbe as ReferenceProbe
from .unseen_classes import RetrievalProbe as RetrievalProbe
from .unseen_classes import UnseenClassProbe as UnseenClassProbe

__all__ = [
    "AlignmentProbe",
    "AnsatzProbe",
    "AttributionProbe",
    "CKAProbe",
    "CollapseProbe",
    "DistanceProbe",
    "FeatureProbe",
    "GramProbe",
    "LossProbe",
    "Measure",
    "Probe",
    "ReferenceProbe",
    "RetrievalProbe",
    "SpectrumProbe",
    "UnseenClassProbe",
]
