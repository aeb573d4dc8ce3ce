from featurelab.modules.decoding import *
