from .images import Digits as Digits
from .public import DatasetMissing as DatasetMissing
from .public import PublicImages as PublicImages
from .public import Source as Source
from .public import available as available
from .public import check as check
from .public import fetch as fetch
from .public import load as load
from .public import require as require
from .synthetic import AlignmentReversing as AlignmentReversing
from .synthetic import ChainMonomials as ChainMonomials
from .synthetic import HighRankPolynomial as HighRankPolynomial
from .synthetic import chain_egop as chain_egop
from .synthetic import decaying_covariance as decaying_covariance
from .tensors import Batches as Batches
from .tensors import TensorData as TensorData
from .tensors import stream as stream

__all__ = [
    "AlignmentReversing",
    "Batches",
    "ChainMonomials",
    "DatasetMissing",
    "Digits",
    "HighRankPolynomial",
    "PublicImages",
    "Source",
    "TensorData",
    "available",
    "chain_egop",
    "check",
    "decaying_covariance",
    "fetch",
    "load",
    "require",
    "stream",
]
