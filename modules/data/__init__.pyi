from .augment import Augmentation as Augmentation
from .augment import CropAndFlip as CropAndFlip
from .augment import crop_and_flip as crop_and_flip
from .coarse_mixture import NuisanceMixture as NuisanceMixture
from .digit_classes import BalancedDigits as BalancedDigits
from .digit_images import DigitImages as DigitImages
from .gaussian_mixture import GaussianClusters as GaussianClusters
from .gaussian_mixture import nested_means as nested_means
from .gaussian_mixture import orthogonal_means as orthogonal_means
from .gaussian_mixture import paired_means as paired_means
from .gaussian_mixture import similar_groups as similar_groups
from .gaussian_mixture import spread_means as spread_means
from .images import Digits as Digits
from .metric_digits import digit_pictures as digit_pictures
from .metric_digits import square_symmetry as square_symmetry
from .metric_digits import symmetric_digits as symmetric_digits
from .mixtures import ClassMixture as ClassMixture
from .mixtures import class_rows as class_rows
from .public import PublicImages as PublicImages
from .public_names import CIFAR10 as CIFAR10
from .public_names import CIFAR100 as CIFAR100
from .public_names import CIFAR100_COARSE as CIFAR100_COARSE
from .public_names import CIFAR100_TO_COARSE as CIFAR100_TO_COARSE
from .public_sources import DatasetMissing as DatasetMissing
from .public_sources import Source as Source
from .public_sources import available as available
from .public_sources import check as check
from .public_sources import fetch as fetch
from .public_sources import load as load
from .public_sources import require as require
from .public_sources import source as source
from .random_fields import class_clouds as class_clouds
from .random_fields import random_fields as random_fields
from .relabel import Relabelled as Relabelled
from .relabel import coarse_groups as coarse_groups
from .relabel import fine_labels as fine_labels
from .relabel import groups_from_pairs as groups_from_pairs
from .relabel import random_groups as random_groups
from .streaming import BalancedBatches as BalancedBatches
from .streaming import StreamedImages as StreamedImages
from .streaming import metric_split as metric_split
from .streaming import random_classes as random_classes
from .subgaussian import SubGaussianClasses as SubGaussianClasses
from .subgaussian import SubGaussianRegression as SubGaussianRegression
from .subgaussian import gaussian as gaussian
from .subgaussian import mean_length as mean_length
from .subgaussian import rotated as rotated
from .subgaussian import rotation as rotation
from .subgaussian import shrinkage as shrinkage
from .subgaussian import unseen_class as unseen_class
from .synthetic import AlignmentReversing as AlignmentReversing
from .synthetic import ChainMonomials as ChainMonomials
from .synthetic import HighRankPolynomial as HighRankPolynomial
from .synthetic import chain_egop as chain_egop
from .synthetic import decaying_covariance as decaying_covariance
from .tensors import Batches as Batches
from .tensors import TensorData as TensorData
from .tensors import stream as stream
from .unseen_classes import ClassSplit as ClassSplit
from .unseen_classes import TwoClasses as TwoClasses
from .unseen_classes import public_pool as public_pool

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "CIFAR100_COARSE",
    "CIFAR100_TO_COARSE",
    "AlignmentReversing",
    "Augmentation",
    "BalancedBatches",
    "BalancedDigits",
    "Batches",
    "ChainMonomials",
    "ClassMixture",
    "ClassSplit",
    "CropAndFlip",
    "DatasetMissing",
    "DigitImages",
    "Digits",
    "GaussianClusters",
    "HighRankPolynomial",
    "NuisanceMixture",
    "PublicImages",
    "Relabelled",
    "Source",
    "StreamedImages",
    "SubGaussianClasses",
    "SubGaussianRegression",
    "TensorData",
    "TwoClasses",
    "available",
    "chain_egop",
    "check",
    "class_clouds",
    "class_rows",
    "coarse_groups",
    "crop_and_flip",
    "decaying_covariance",
    "digit_pictures",
    "fetch",
    "fine_labels",
    "gaussian",
    "groups_from_pairs",
    "load",
    "mean_length",
    "metric_split",
    "nested_means",
    "orthogonal_means",
    "paired_means",
    "public_pool",
    "random_classes",
    "random_fields",
    "random_groups",
    "require",
    "rotated",
    "rotation",
    "shrinkage",
    "similar_groups",
    "source",
    "spread_means",
    "square_symmetry",
    "stream",
    "symmetric_digits",
    "unseen_class",
]
