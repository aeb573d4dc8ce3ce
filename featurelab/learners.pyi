from featurelab.modules.learners import *
