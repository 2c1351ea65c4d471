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
