"""The commands of `sennit`, one a file: a dataclass whose fields are the options, and whose `run` does it.

Their modules import torch only inside `run`.
"""
