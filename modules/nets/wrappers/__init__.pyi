from .frozen_statistics import FixedStatistics as FixedStatistics
from .frozen_statistics import freeze_statistics as freeze_statistics
from .linearised import Linearised as Linearised
from .siamese import FineTuned as FineTuned
from .siamese import Siamese as Siamese
from .siamese import projector as projector
from .stack import PerceptronStack as PerceptronStack
from .widths import ParallelWidths as ParallelWidths
