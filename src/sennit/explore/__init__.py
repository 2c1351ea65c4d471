"""From a trained supernet to a network: frozen networks, evaluation, search, retraining, export."""
