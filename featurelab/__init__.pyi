from .modules import data as data
from .modules import decoding as decoding
from .modules import language as language
from .modules import learners as learners
from .modules import measures as measures
from .modules import nets as nets
from .modules import probes as probes
from .modules import theory as theory
