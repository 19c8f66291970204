"""Training of the two models that ship with the project, told in order.

A seed gives a corpus of records (corpus.py). Its lines give a vocabulary of characters or of merges (vocabularies.py),
and with it examples: each token and the 24 before it (windows.py). The weights of the model are one vector
(weights.py); a step computes the gradient of the loss (gradients.py) and lets Adam use it (adam.py), over and over
(train.py), with a checkpoint now and then (checkpoint.py). Then the result is measured (evaluate.py) and written
(ship.py).
"""

from engine.training.ship import train_embedded

__all__ = ["train_embedded"]
