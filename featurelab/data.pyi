from featurelab.modules.data import *
