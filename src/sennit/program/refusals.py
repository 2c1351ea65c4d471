"""What a recording says when it refuses a model: the place, the rule, the way to write it instead."""

NO_DATA = """{where}: `{call}` needs the numbers inside a tensor, which differ from batch to batch, so the program
of this arch would not be fixed. Write it so that tensors decide:
    wrong:  if x.sum() > 0: x = x * 2
    right:  x = torch.where(x.sum() > 0, x * 2, x)
or put the code into a module of its own without choices inside: such a module is one step, and its forward may ask
and branch as it likes."""

FOREIGN = """{where}: `{call}` uses a tensor of shape {shape} that is neither an input, nor a parameter or buffer of the
model, nor computed from these. Register it, so that every worker has it:
    wrong:  self.mask = torch.ones(8)
    right:  self.register_buffer("mask", torch.ones(8))"""

STATISTICS = """{where}: `{call}` in inlined code updates running statistics, which no recording can see. Use a
module, which is one step and owns its statistics:
    wrong:  F.batch_norm(x, self.mean, self.var, training=self.training)
    right:  self.norm = nn.BatchNorm1d(width)    ...    self.norm(x)"""

MODIFIED = """{where}: `{call}` modifies a tensor that came in (in-place). The step before may still need it. Write
    wrong:  x += y          nn.ReLU(inplace=True)
    right:  x = x + y       nn.ReLU()"""

REBOUND = """{path} replaces its {name!r} by another tensor in forward. Write into it, so that it stays where every
worker finds it, in a module of its own without choices inside (one step):
    wrong:  self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
    right:  self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)"""

READ_ELSEWHERE = """{where}: `{call}` reads buffer {buffer!r}, which step {writer!r} writes. A buffer that moves belongs
to the step that writes it: others would find whatever is there when they come. Let that module return what is needed:
    wrong:  y = self.norm(x);  z = y - self.norm.running_mean
    right:  a module whose forward calls self.norm, and returns y and the mean"""


WRITES = """{where}: step {name!r} ({call}) writes into its own parameter {parameter!r} in forward.
Only the optimizer may change a parameter, once per subnet, or the result would depend on who runs which step. Compute a
changed copy instead (w = self.weight.clamp(-1, 1)), or keep what forward changes in a buffer."""

FOREIGN_WRITE = """{where}: step {name!r} writes {tensor!r} in forward, which is not its own. Only a module that holds a
buffer may write it, since steps run in several processes and each is given what its module holds. Let the module that
holds it write it, or register the same tensor with both."""

UNFORESEEN = """{where}: step {name!r} writes {buffers} in forward for some combinations of choices only. Forwards write
buffers in the order of subnets, so what is written is settled before training, from archs that run every candidate.
None of those shows this write, and this arch does: {arch}
Write it in every forward, or whenever one candidate is chosen:
    wrong:  if x.shape[1] > y.shape[1]: self.count += 1
    right:  self.count += x.shape[1] > y.shape[1]"""

UNCOVERED = """{where}: step {name!r} uses {tensors} for some combinations of choices only, outside of choices.
What a step uses is settled before training, from archs that run every candidate. None of those runs this step, and this
arch does: {arch}
Run it in every forward, or make it a candidate of a choice."""

GIVEN_LIST = """{where}: step {name!r} changes a {kind} that it is given. Steps run in several processes, so what one
puts into it another would not see. Let the layer return what is to be handed on:
    wrong:  x = self.layer(x, notes)
    right:  x, note = self.layer(x);  notes.append(note)"""

UNREGISTERED = """{where}: this {kind} is no part of the space: a choice must be made in __init__ and held by a module,
or its layers are neither found nor trained. Plain lists, tuples and dicts hide what is in them. Write
    wrong:  self.blocks = [sn.LayerChoice(...), ...]            sn.LayerChoice(...)(x) in forward
    right:  self.blocks = nn.ModuleList([sn.LayerChoice(...), ...])  (nn.ModuleDict for a dict), in __init__"""
