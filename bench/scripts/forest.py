"""A forest: 100 decision trees, and what most of them say."""

import pair
import numpy as np
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

X, Y = make_classification(1200, 20, n_informative=8, random_state=0)


def votes(seed):
    rows = np.random.default_rng(seed).integers(0, 1000, 1000)
    tree = DecisionTreeClassifier(max_features="sqrt", random_state=seed).fit(X[rows], Y[rows])
    return tree.predict(X[1000:])


def accuracy(found):
    return float(((np.mean(found, axis=0) > 0.5) == Y[1000:]).mean())


pair.bag(votes, range(100), accuracy, 4)
