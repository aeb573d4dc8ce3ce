from featurelab.modules.measures import *
