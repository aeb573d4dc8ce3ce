from .alignment_scores import alignment as alignment
from .alignment_scores import alignment_by_class as alignment_by_class
from .alignment_scores import elasticity as elasticity
from .alignment_scores import elasticity_by_class as elasticity_by_class
from .alignment_scores import kendalls_w as kendalls_w
from .alignment_scores import recall_at_k as recall_at_k
from .alignment_scores import recall_by_class as recall_by_class
from .ansatz import decomposition as decomposition
from .ansatz import diagonals as diagonals
from .ansatz import neural_feature_matrix as neural_feature_matrix
from .ansatz import nfa as nfa
from .ansatz import nfa_pearson as nfa_pearson
from .ansatz import pearson as pearson
from .ansatz import random_kernel_control as random_kernel_control
from .ansatz import rho as rho
from .ansatz import root_scores as root_scores
from .ansatz import rotation_null as rotation_null
from .attribution import attribution_drops as attribution_drops
from .attribution import svd_attribution as svd_attribution
from .cluster_probe import Clusters as Clusters
from .cluster_probe import best_renaming as best_renaming
from .cluster_probe import cluster_and_probe as cluster_and_probe
from .cluster_probe import cluster_scores as cluster_scores
from .cluster_probe import clusters_within_groups as clusters_within_groups
from .cluster_probe import linear_probe as linear_probe
from .collapse import ClassMoments as ClassMoments
from .collapse import PinvCollapse as PinvCollapse
from .collapse import class_moments as class_moments
from .collapse import nc1 as nc1
from .collapse import nc1_pinv as nc1_pinv
from .collapse import nc2 as nc2
from .collapse import nc2_cosines as nc2_cosines
from .collapse import nc3 as nc3
from .collapse import nc4 as nc4
from .collapse import traces as traces
from .collapse_theory import collapse_rate as collapse_rate
from .collapse_theory import gram_error as gram_error
from .collapse_theory import kappa_exact as kappa_exact
from .collapse_theory import kappa_printed as kappa_printed
from .collapse_theory import krr_value as krr_value
from .collapse_theory import lifted as lifted
from .collapse_theory import linear_layer as linear_layer
from .collapse_theory import relu_feature_kernel as relu_feature_kernel
from .concordance import concordance_test as concordance_test
from .concordance import fisher_combine as fisher_combine
from .concordance import pearson_p as pearson_p
from .concordance import shared_class_level as shared_class_level
from .concordance import spearman as spearman
from .distances import class_distances as class_distances
from .distances import distance_blocks as distance_blocks
from .distances import msdr as msdr
from .distances import msdr_null as msdr_null
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
from .gradients import tangent_covariance as tangent_covariance
from .gradients import tangent_features as tangent_features
from .gram import centred_cosines as centred_cosines
from .gram import gram_summary as gram_summary
from .gram import traces_from_gram as traces_from_gram
from .head_agop import relu_tangent_covariance as relu_tangent_covariance
from .hermite import gauss_hermite as gauss_hermite
from .hermite import gaussian_moment as gaussian_moment
from .hermite import hermite_coefficients as hermite_coefficients
from .hermite import hermite_expectation as hermite_expectation
from .hermite import hermite_polynomial as hermite_polynomial
from .hermite import hermite_product_expectation as hermite_product_expectation
from .hermite import printed_hermite_product as printed_hermite_product
from .kernel_machines import Gaussian as Gaussian
from .kernel_machines import Laplace as Laplace
from .kernel_machines import RadialKernel as RadialKernel
from .kernel_machines import Regression as Regression
from .kernel_machines import kernel_agop as kernel_agop
from .kernel_machines import kernel_predict as kernel_predict
from .kernel_machines import kernel_regression as kernel_regression
from .kernel_machines import radial_kernel as radial_kernel
from .kernel_machines import squared_distances as squared_distances
from .kernels import layer_ntk as layer_ntk
from .kernels import ntk as ntk
from .kernels import ptk as ptk
from .labels import class_indices as class_indices
from .layers import layer_names as layer_names
from .layers import left_out as left_out
from .one_step_theory import GradientParts as GradientParts
from .one_step_theory import activation_coefficients as activation_coefficients
from .one_step_theory import alignment_theory as alignment_theory
from .one_step_theory import effective_rate as effective_rate
from .one_step_theory import elasticity_first_order as elasticity_first_order
from .one_step_theory import elasticity_theory as elasticity_theory
from .one_step_theory import expansion_degree as expansion_degree
from .one_step_theory import expansion_terms as expansion_terms
from .one_step_theory import gradient_split as gradient_split
from .one_step_theory import head_direction as head_direction
from .one_step_theory import mean_slope as mean_slope
from .one_step_theory import power_errors as power_errors
from .one_step_theory import rank_one_errors as rank_one_errors
from .one_step_theory import train_direction as train_direction
from .signal_noise import cubic_signal as cubic_signal
from .signal_noise import horizon as horizon
from .signal_noise import mixture_msdr as mixture_msdr
from .signal_noise import relu_msdr as relu_msdr
from .signal_noise import separation_bound as separation_bound
from .signal_noise import separation_ratio as separation_ratio
from .similarity import CrossMoments as CrossMoments
from .similarity import linear_cka as linear_cka
from .spectra import effective_rank as effective_rank
from .spectra import eigenvalue_dispersion as eigenvalue_dispersion
from .spectra import haar_orthogonal as haar_orthogonal
from .spectra import isospectral as isospectral
from .spectra import participation_ratio as participation_ratio
from .spectra import psd_power as psd_power
from .spectra import stable_rank as stable_rank
from .unseen import UnseenMeans as UnseenMeans
from .unseen import class_features as class_features
from .unseen import unseen_scores as unseen_scores

__all__ = [
    "ClassMoments",
    "Clusters",
    "CrossMoments",
    "Gaussian",
    "GradientParts",
    "Laplace",
    "PinvCollapse",
    "RadialKernel",
    "Regression",
    "TangentCovariance",
    "UnseenMeans",
    "activation_coefficients",
    "agop",
    "alignment",
    "alignment_by_class",
    "alignment_theory",
    "attribution_drops",
    "best_renaming",
    "centred_cosines",
    "class_distances",
    "class_features",
    "class_indices",
    "class_moments",
    "cluster_and_probe",
    "cluster_scores",
    "clusters_within_groups",
    "collapse_rate",
    "concordance_test",
    "cubic_signal",
    "decomposition",
    "derivative_correlation",
    "diagonals",
    "distance_blocks",
    "effective_rank",
    "effective_rate",
    "eigenvalue_dispersion",
    "elasticity",
    "elasticity_by_class",
    "elasticity_first_order",
    "elasticity_theory",
    "expansion_degree",
    "expansion_terms",
    "fisher_combine",
    "free_probability_prediction",
    "gauss_hermite",
    "gaussian_moment",
    "gradient_split",
    "gram_error",
    "gram_summary",
    "haar_orthogonal",
    "head_direction",
    "hermite_coefficients",
    "hermite_expectation",
    "hermite_polynomial",
    "hermite_product_expectation",
    "horizon",
    "isospectral",
    "kappa_exact",
    "kappa_printed",
    "kendalls_w",
    "kernel_agop",
    "kernel_predict",
    "kernel_regression",
    "krr_value",
    "layer_agop",
    "layer_inputs",
    "layer_names",
    "layer_ntk",
    "left_out",
    "lifted",
    "linear_cka",
    "linear_layer",
    "linear_probe",
    "mean_ptk_correlation",
    "mean_slope",
    "mixture_msdr",
    "msdr",
    "msdr_null",
    "nc1",
    "nc1_pinv",
    "nc2",
    "nc2_cosines",
    "nc3",
    "nc4",
    "neural_feature_matrix",
    "nfa",
    "nfa_pearson",
    "ntk",
    "observed_quadratic",
    "participation_ratio",
    "pearson",
    "pearson_p",
    "power_errors",
    "printed_hermite_product",
    "psd_power",
    "ptk",
    "r_moments",
    "r_moments_theory",
    "radial_kernel",
    "random_kernel_control",
    "rank_one_errors",
    "recall_at_k",
    "recall_by_class",
    "relu_feature_kernel",
    "relu_msdr",
    "relu_tangent_covariance",
    "rho",
    "root_scores",
    "rotation_null",
    "separation_bound",
    "separation_ratio",
    "shared_class_level",
    "spearman",
    "squared_distances",
    "stable_rank",
    "svd_attribution",
    "tangent_covariance",
    "tangent_features",
    "traces",
    "traces_from_gram",
    "train_direction",
    "unseen_scores",
]
