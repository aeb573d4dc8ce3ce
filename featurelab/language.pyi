from featurelab.modules.language import *
