from . import data as data
from . import decoding as decoding
from . import language as language
from . import learners as learners
from . import measures as measures
from . import nets as nets
from . import probes as probes
from . import theory as theory
