"""Sentence pairs: EN-DE help texts, number words; length buckets, sub-words, greedy decoding, BLEU."""
