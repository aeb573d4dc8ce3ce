from .losses import Forward as Forward
from .losses import Loss as Loss
from .losses import accuracy as accuracy
from .losses import cross_entropy as cross_entropy
from .losses import loss as loss
from .losses import mse as mse
from .measurement import Measurement as Measurement
from .optimizers import AdaptiveSpeeds as AdaptiveSpeeds
from .optimizers import SpeedLimited as SpeedLimited
from .optimizers import adam as adam
from .optimizers import gd as gd
from .optimizers import speed_limited as speed_limited
from .supervised import Diverged as Diverged
from .supervised import Supervised as Supervised

__all__ = [
    "AdaptiveSpeeds",
    "Diverged",
    "Forward",
    "Loss",
    "Measurement",
    "SpeedLimited",
    "Supervised",
    "accuracy",
    "adam",
    "cross_entropy",
    "gd",
    "loss",
    "mse",
    "speed_limited",
]
