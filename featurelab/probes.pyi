from featurelab.modules.probes import *
