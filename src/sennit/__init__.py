"""sennit: supernets and large static networks as pipelines, the same bits on any number of devices."""

from sennit.recipe import Placement as Placement
from sennit.recipe import Recipe as Recipe
from sennit.recipe import load_recipe as load_recipe
from sennit.space import InputChoice as InputChoice
from sennit.space import LayerChoice as LayerChoice
from sennit.space import ModelSpace as ModelSpace
from sennit.space import Repeat as Repeat
from sennit.supernet.hashes import state_hash as state_hash
from sennit.supernet.task import keyed_rng as keyed_rng

__version__ = "0.1.0"
