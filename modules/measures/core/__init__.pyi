from .labels import class_indices as class_indices
from .layers import layer_names as layer_names
from .layers import unmeasured_weights as unmeasured_weights
from .samples import Samples as Samples
