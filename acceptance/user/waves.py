"""Four kinds of noisy waves, 64 samples long: sine, square, saw, chirp."""

import torch


class Waves:
    def __init__(self, split="train", noise=0.5):
        n, seed = {"train": (1600, 0), "valid": (400, 1), "test": (400, 2)}[split]
        g = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 1, 64)
        f = 2 + 4 * torch.rand(n, 1, generator=g)
        p = torch.rand(n, 1, generator=g)
        phase = f * t + p
        self.y = torch.randint(0, 4, (n,), generator=g)
        kinds = torch.stack(
            [
                torch.sin(6.2832 * phase),
                torch.sign(torch.sin(6.2832 * phase)),
                2 * (phase % 1) - 1,
                torch.sin(6.2832 * (phase + 3 * t * t)),
            ]
        )
        x = kinds[self.y, torch.arange(n)]
        self.x = (x + noise * torch.randn(n, 64, generator=g)).unsqueeze(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]
