from featurelab.modules.nets import *
