from .deep_rfm import DeepRFM as DeepRFM
from .deep_rfm import LayerByLayer as LayerByLayer
from .deep_rfm import LinearisedDeepRFM as LinearisedDeepRFM
from .deep_rfm import collapse_metrics as collapse_metrics
from .losses import Diverged as Diverged
from .losses import Forward as Forward
from .losses import Loss as Loss
from .losses import accuracy as accuracy
from .losses import cross_entropy as cross_entropy
from .losses import loss as loss
from .losses import mse as mse
from .measurement import Measurement as Measurement
from .one_step import OneStep as OneStep
from .one_step import half_squared_loss as half_squared_loss
from .one_step import negative_gradient as negative_gradient
from .one_step import stepped as stepped
from .optimizers import AdaptiveSpeeds as AdaptiveSpeeds
from .optimizers import Schedule as Schedule
from .optimizers import SpeedLimited as SpeedLimited
from .optimizers import adam as adam
from .optimizers import gd as gd
from .optimizers import milestones as milestones
from .optimizers import sgd as sgd
from .optimizers import speed_limited as speed_limited
from .supervised import Supervised as Supervised
from .unhinged import cubic_descent as cubic_descent
from .unhinged import stacked_cross_entropy as stacked_cross_entropy
from .unhinged import unhinged as unhinged

__all__ = [
    "AdaptiveSpeeds",
    "DeepRFM",
    "Diverged",
    "Forward",
    "LayerByLayer",
    "LinearisedDeepRFM",
    "Loss",
    "Measurement",
    "OneStep",
    "Schedule",
    "SpeedLimited",
    "Supervised",
    "accuracy",
    "adam",
    "collapse_metrics",
    "cross_entropy",
    "cubic_descent",
    "gd",
    "half_squared_loss",
    "loss",
    "milestones",
    "mse",
    "negative_gradient",
    "sgd",
    "speed_limited",
    "stacked_cross_entropy",
    "stepped",
    "unhinged",
]
