"""Image sets: digits, MNIST-5k, Fashion-MNIST, CIFAR-10."""
