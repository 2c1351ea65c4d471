"""What may be built: model spaces, their choices, archs, and what a space contains."""

from sennit.space.input_choice import InputChoice as InputChoice
from sennit.space.layer_choice import LayerChoice as LayerChoice
from sennit.space.model_space import ModelSpace as ModelSpace
from sennit.space.repeat import Repeat as Repeat
