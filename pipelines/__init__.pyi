import numpy as np
import torch as torch
from matplotlib import colors as colors
from pydantic import Field as Field
from pydantic import model_validator as model_validator
from scipy import stats as stats

from featurelab.modules import data as data
from featurelab.modules import decoding as decoding
from featurelab.modules import language as language
from featurelab.modules import learners as learners
from featurelab.modules import measures as measures
from featurelab.modules import nets as nets
from featurelab.modules import probes as probes
from featurelab.pipelines.engine.errors import Missing as Missing
from featurelab.pipelines.engine.experiment.axes import Grid as Grid
from featurelab.pipelines.engine.experiment.axes import choice as choice
from featurelab.pipelines.engine.experiment.axes import loguniform as loguniform
from featurelab.pipelines.engine.experiment.axes import randint as randint
from featurelab.pipelines.engine.experiment.axes import uniform as uniform
from featurelab.pipelines.engine.experiment.claims import above as above
from featurelab.pipelines.engine.experiment.claims import at_least as at_least
from featurelab.pipelines.engine.experiment.claims import at_most as at_most
from featurelab.pipelines.engine.experiment.claims import below as below
from featurelab.pipelines.engine.experiment.claims import between as between
from featurelab.pipelines.engine.experiment.config import Config as Config
from featurelab.pipelines.engine.experiment.config import TrainedConfig as TrainedConfig
from featurelab.pipelines.engine.experiment.config import stream_seed as stream_seed
from featurelab.pipelines.engine.experiment.cost import Cost as Cost
from featurelab.pipelines.engine.experiment.cost import mlp_cost as mlp_cost
from featurelab.pipelines.engine.experiment.drawing import CATEGORIES as CATEGORIES
from featurelab.pipelines.engine.experiment.drawing import band as band
from featurelab.pipelines.engine.experiment.drawing import bars as bars
from featurelab.pipelines.engine.experiment.drawing import bound_level as bound_level
from featurelab.pipelines.engine.experiment.drawing import curves as curves
from featurelab.pipelines.engine.experiment.drawing import heatmap as heatmap
from featurelab.pipelines.engine.experiment.drawing import legend_below as legend_below
from featurelab.pipelines.engine.experiment.drawing import legend_beside as legend_beside
from featurelab.pipelines.engine.experiment.drawing import null_level as null_level
from featurelab.pipelines.engine.experiment.drawing import paper_level as paper_level
from featurelab.pipelines.engine.experiment.drawing import points as points
from featurelab.pipelines.engine.experiment.drawing import shades as shades
from featurelab.pipelines.engine.experiment.experiment import Experiment as Experiment
from featurelab.pipelines.engine.experiment.printed import printed_table as printed_table
from featurelab.pipelines.engine.experiment.results import Results as Results
from featurelab.pipelines.engine.trial.fit import evaluate as evaluate
from featurelab.pipelines.engine.trial.fit import fit as fit
from featurelab.pipelines.engine.trial.observed import Observed as Observed
from featurelab.tracking import Recorder as Recorder

__all__ = ["np"]  # the others are, by being imported under their own names
