"""The speed table: milliseconds per subnet of every way to train a recipe, with the limit and the simulator's
prediction beside each. `docs/speed.md` says how to measure and what the columns mean.

    python -m benchmarks.speed --recipe recipes/nlp.c3.toml --data en_de_help.tsv.gz --out speed.json
"""
