from .modules import data as data
from .modules import learners as learners
from .modules import measures as measures
from .modules import nets as nets
from .modules import probes as probes
