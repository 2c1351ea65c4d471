from torch import nn

import sennit as sn


class Net(sn.ModelSpace):
    def __init__(self, width=16, classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU())
        self.blocks = nn.ModuleList(
            [
                sn.LayerChoice(
                    {
                        "k3": nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.ReLU()),
                        "k9": nn.Sequential(nn.Conv1d(width, width, 9, padding=4), nn.BatchNorm1d(width), nn.ReLU()),
                        "drop": nn.Sequential(nn.Conv1d(width, width, 1), nn.GELU(), nn.Dropout(0.2)),
                        "skip": nn.Identity(),
                    }
                )
                for _ in range(5)
            ]
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(-1))
