from featurelab.modules.theory import *
