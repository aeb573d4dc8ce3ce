"""Figure 1. The alignment of weights and tangent features is no accident of spectra.

A two-hidden-layer ReLU network learns the chain monomial y = sum_i x_i x_(i+1) of rank 5. At the end of training the
first layer's NFM F = W'W resembles the AGOP G = W'KW. Replace K by a matrix Q with the same eigenvalues and random
eigenvectors, and the resemblance is gone although the weights are the same.
"""

from typing import Any

import torch

from modules import measures
from pipelines.claims import at_least, between
from pipelines.drawing import heatmap
from pipelines.experiment import Experiment
from pipelines.neural_feature_ansatz.chain import SWEEP_AXES, ChainConfig, cost, keep_features, train
