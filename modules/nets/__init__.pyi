from .conv import GlobalMean as GlobalMean
from .conv import MeanGrid as MeanGrid
from .conv import TrunkHead as TrunkHead
from .conv import conv_trunk as conv_trunk
from .conv import drawn as drawn
from .cubic import CubicNearZero as CubicNearZero
from .cubic import CubicNet as CubicNet
from .cubic import cubic as cubic
from .densenet import densenet as densenet
from .densenet import densenet121 as densenet121
from .mlp import MLP as MLP
from .mlp import Quadratic as Quadratic
from .mlp import activation as activation
from .mlp import mlp as mlp
from .mlp import quadratic as quadratic
from .mlp import xavier_mlp as xavier_mlp
from .norm_softmax import MetricNet as MetricNet
from .norm_softmax import NormSoftmax as NormSoftmax
from .perceptron import Perceptron as Perceptron
from .perceptron import perceptron as perceptron
from .pretrained import WeightsMissing as WeightsMissing
from .pretrained import pretrained_resnet50 as pretrained_resnet50
from .proportional import CentredActivation as CentredActivation
from .proportional import TwoLayer as TwoLayer
from .proportional import two_layer as two_layer
from .random_features import RandomFeatures as RandomFeatures
from .resnet import resnet as resnet
from .resnet import resnet18 as resnet18
from .resnet import resnet50 as resnet50
from .stack import Stack as Stack
from .trunk_feature import TrunkFeature as TrunkFeature
from .vgg import vgg as vgg
from .vgg import vgg_trunk as vgg_trunk

__all__ = [
    "MLP",
    "CentredActivation",
    "CubicNearZero",
    "CubicNet",
    "GlobalMean",
    "MeanGrid",
    "MetricNet",
    "NormSoftmax",
    "Perceptron",
    "Quadratic",
    "RandomFeatures",
    "Stack",
    "TrunkFeature",
    "TrunkHead",
    "TwoLayer",
    "WeightsMissing",
    "activation",
    "conv_trunk",
    "cubic",
    "densenet",
    "densenet121",
    "drawn",
    "mlp",
    "perceptron",
    "pretrained_resnet50",
    "quadratic",
    "resnet",
    "resnet18",
    "resnet50",
    "two_layer",
    "vgg",
    "vgg_trunk",
    "xavier_mlp",
]
