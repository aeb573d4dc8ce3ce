from .mlp import MLP as MLP
from .mlp import Quadratic as Quadratic
from .mlp import activation as activation
from .mlp import mlp as mlp
from .mlp import quadratic as quadratic

__all__ = ["MLP", "Quadratic", "activation", "mlp", "quadratic"]
