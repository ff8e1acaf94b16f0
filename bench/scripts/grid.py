"""A grid search over a support vector machine: 120 calls."""

import pair
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import SVC

X, Y = make_classification(400, 12, random_state=0)
CASES = [(c, gamma) for c in np.logspace(-2, 3, 12) for gamma in np.logspace(-4, 1, 10)]


def score(case):
    c, gamma = case
    return SVC(C=c, gamma=gamma).fit(X[:300], Y[:300]).score(X[300:], Y[300:])


pair.bag(score, CASES, max, 4)
