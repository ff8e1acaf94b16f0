"""Cross validation: 30 strengths of a ridge regression, five folds each."""

import pair
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 30))
Y = X @ RNG.standard_normal(30) + RNG.standard_normal(600)
FOLDS = list(KFold(5).split(X))
CASES = [(10.0**power, fold) for power in np.linspace(-3, 3, 30) for fold in range(5)]


def score(case):
    alpha, fold = case
    train, test = FOLDS[fold]
    return Ridge(alpha=alpha).fit(X[train], Y[train]).score(X[test], Y[test])


pair.bag(score, CASES, max, 8)
