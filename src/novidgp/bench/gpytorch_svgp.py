"""GPyTorch's sparse variational GP (Hensman et al. 2013), as its users write it. Needs GPyTorch.

500 inducing points, 3,000 steps of Adam on 1,024 rows each: four epochs of 700,000 rows. Our choices:
inducing points from k-means, one lengthscale per input, a decaying rate.
"""
# GPyTorch's own annotations do not admit what its documentation does.
# pyright: reportMissingImports=false, reportCallIssue=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportArgumentType=false

import gpytorch
import jax
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Regression, from_predictive
from novidgp.model.build import inducing_points
from novidgp.numerics.random import Streams
from novidgp.numerics.scaling import standardiser
from novidgp.prediction.scores import Gaussian

INDUCING, BATCH_ROWS, STEPS, RATE = 500, 1024, 3000, 0.01
START_ROWS, PREDICT_ROWS = 10_000, 4096


class SparseGP(gpytorch.models.ApproximateGP):
    """One GP with a Matern-5/2 kernel that has a lengthscale per input."""

    def __init__(self, Z):
        q = CholeskyVariationalDistribution(len(Z))
        super().__init__(VariationalStrategy(self, Z, q))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=Z.shape[1])
        )

    def forward(self, x):
        """Prior at `x`."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit_svgp(problem: Problem, *, seed: int, inducing: int = INDUCING, steps: int = STEPS) -> Regression:
    """The fitted GP, ready to be scored."""
    torch.manual_seed(seed)
    scaling = standardiser(problem.X)
    X, y = (torch.as_tensor(a, dtype=torch.float32) for a in (scaling.inputs(problem.X), problem.y))
    some = X[torch.randperm(len(X))[:START_ROWS]].double().numpy()
    Z = inducing_points(some, min(inducing, len(some)), Streams(jax.random.key(seed)))
    model = SparseGP(torch.as_tensor(np.array(Z), dtype=torch.float32))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    objective = VariationalELBO(likelihood, model, num_data=len(X))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda t: 0.5 * (1 + np.cos(np.pi * t / steps)))
    order = torch.empty(0, dtype=torch.long)
    model.train()
    for _ in range(steps):
        if len(order) < min(len(X), BATCH_ROWS):
            order = torch.randperm(len(X))
        chosen, order = order[:BATCH_ROWS], order[BATCH_ROWS:]
        optimiser.zero_grad()
        (-objective(model(X[chosen]), y[chosen])).backward()
        optimiser.step()
        schedule.step()
    model.eval()

    def predictive(X):
        inputs = torch.as_tensor(scaling.inputs(X), dtype=torch.float32)
        with torch.no_grad():
            parts = [likelihood(model(part)) for part in inputs.split(PREDICT_ROWS)]
        mean = torch.cat([part.mean for part in parts]).double().numpy()
        return Gaussian(mean, torch.cat([part.variance for part in parts]).double().sqrt().numpy())

    return from_predictive(predictive)
