from .ansatz import decomposition as decomposition
from .ansatz import diagonals as diagonals
from .ansatz import neural_feature_matrix as neural_feature_matrix
from .ansatz import nfa as nfa
from .ansatz import pearson as pearson
from .ansatz import random_kernel_control as random_kernel_control
from .ansatz import rho as rho
from .early_time import derivative_correlation as derivative_correlation
from .early_time import free_probability_prediction as free_probability_prediction
from .early_time import mean_ptk_correlation as mean_ptk_correlation
from .early_time import observed_quadratic as observed_quadratic
from .early_time import r_moments as r_moments
from .early_time import r_moments_theory as r_moments_theory
from .gradients import TangentCovariance as TangentCovariance
from .gradients import agop as agop
from .gradients import layer_agop as layer_agop
from .gradients import layer_inputs as layer_inputs
from .gradients import layer_names as layer_names
from .gradients import tangent_covariance as tangent_covariance
from .gradients import tangent_features as tangent_features
from .kernels import layer_ntk as layer_ntk
from .kernels import ntk as ntk
from .kernels import ptk as ptk
from .spectra import effective_rank as effective_rank
from .spectra import eigenvalue_dispersion as eigenvalue_dispersion
from .spectra import haar_orthogonal as haar_orthogonal
from .spectra import isospectral as isospectral
from .spectra import participation_ratio as participation_ratio
from .spectra import stable_rank as stable_rank

__all__ = [
    "TangentCovariance",
    "agop",
    "decomposition",
    "derivative_correlation",
    "diagonals",
    "effective_rank",
    "eigenvalue_dispersion",
    "free_probability_prediction",
    "haar_orthogonal",
    "isospectral",
    "layer_agop",
    "layer_inputs",
    "layer_names",
    "layer_ntk",
    "mean_ptk_correlation",
    "neural_feature_matrix",
    "nfa",
    "ntk",
    "observed_quadratic",
    "participation_ratio",
    "pearson",
    "ptk",
    "r_moments",
    "r_moments_theory",
    "random_kernel_control",
    "rho",
    "stable_rank",
    "tangent_covariance",
    "tangent_features",
]
