"""`nlp.c0` .. `nlp.c3`: encoder-decoder spaces in the manner of the Evolved Transformer."""

from sennit.space.ready.nlp.evolved import EvolvedTransformer as EvolvedTransformer
