"""GPyTorch's deep GP by doubly stochastic variational inference, as its users write it. Needs GPyTorch.

Two layers, 100 inducing points, 1000 steps. Our choices, for GPyTorch's own do not train: hidden layer
around a learned linear map, variational distributions with little noise at the start, jittered lengthscales,
cosine decay. Rates and starts were tuned on the split with seed 100.
"""
# GPyTorch's own annotations do not admit what its documentation does.
# pyright: reportMissingImports=false, reportCallIssue=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportArgumentType=false

from typing import Any

import gpytorch
import jax
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from scipy.special import logsumexp
from scipy.stats import norm

from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Regression
from novidgp.model.build import inducing_points
from novidgp.numerics.random import Streams
from novidgp.numerics.scaling import standardiser

BATCH_ROWS, TRAIN_SAMPLES, TEST_SAMPLES, PREDICT_ROWS = 1000, 10, 100, 500


class Layer(DeepGPLayer):
    """`width` independent GPs (None: one, the last), each with its own RBF-ARD kernel and inducing inputs.

    The variational distribution is set here because GPyTorch would start it at the prior, which drowns a
    hidden layer in noise. The lengthscales are jittered so that the units do not stay copies of one another.
    """

    def __init__(self, Z, width, mean, *, variance, q_std):
        batch = torch.Size([]) if width is None else torch.Size([width])
        count, inputs = Z.shape[-2:]
        q = CholeskyVariationalDistribution(count, batch_shape=batch, mean_init_std=0.0)
        strategy = VariationalStrategy(self, Z.expand(*batch, count, inputs).clone(), q)
        super().__init__(strategy, inputs, width)
        q.chol_variational_covar.data.copy_(q_std * torch.eye(count).expand(*batch, count, count))
        strategy.variational_params_initialized.fill_(1)
        self.mean_module = mean
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=inputs, batch_shape=batch)
        rbf.lengthscale = inputs**0.5 * torch.exp(0.3 * torch.randn(*batch, 1, inputs))
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=batch)
        self.covar_module.outputscale = torch.full(batch, variance)

    def forward(self, x):
        """Prior at `x`."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class TwoLayerDGP(DeepGP):
    """A hidden layer around a learned linear map, started at the identity or at PCA, then a scalar GP."""

    def __init__(self, X, *, width: int, inducing: int = 100, k_means: bool = True, seed: int = 0):
        super().__init__()
        inputs = X.shape[1]
        if width < inputs:
            projection = torch.linalg.svd(X, full_matrices=False).Vh[:width].T
        else:
            projection = torch.eye(inputs, width)
        if k_means:
            streams = Streams(jax.random.key(seed))
            Z = torch.as_tensor(inducing_points(X.numpy(), inducing, streams), dtype=X.dtype)
        else:
            Z = X[torch.randperm(len(X))[:inducing]]
        linear = gpytorch.means.LinearMean(inputs, batch_shape=torch.Size([width]))
        linear.weights.data.copy_(projection.T[..., None])
        linear.bias.data.zero_()
        self.hidden = Layer(Z, width, linear, variance=0.1, q_std=1e-2)
        self.last = Layer(Z @ projection, None, gpytorch.means.ConstantMean(), variance=1.0, q_std=0.1)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
        )
        self.likelihood.noise = 0.25

    def forward(self, x):
        """Distribution of the last layer, one batch member per sample of the hidden layer."""
        return self.last(self.hidden(x))


def training_step(model: TwoLayerDGP, rows: int, learning_rate: float) -> tuple[Any, Any]:
    """A function that takes one step on a minibatch, and its optimiser."""
    objective = DeepApproximateMLL(VariationalELBO(model.likelihood, model, num_data=rows))
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    model.train()

    def step(X, y):
        with gpytorch.settings.num_likelihood_samples(TRAIN_SAMPLES):
            optimiser.zero_grad()
            (-objective(model(X), y)).backward()
            optimiser.step()

    return step, optimiser


def fit_dsvi(
    problem: Problem,
    *,
    seed: int,
    steps: int = 1000,
    learning_rate: float = 0.05,
    decay: bool = True,
    k_means: bool = True,
    width: int | None = None,
) -> Regression:
    """The fitted deep GP, ready to be scored."""
    torch.manual_seed(seed)
    scaling = standardiser(problem.X)
    X, y = (torch.as_tensor(a, dtype=torch.float32) for a in (scaling.inputs(problem.X), problem.y))
    rows, inputs = X.shape
    model = TwoLayerDGP(X, width=min(inputs, 10) if width is None else width, k_means=k_means, seed=seed)
    step, optimiser = training_step(model, rows, learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda t: 0.5 * (1 + np.cos(np.pi * t / steps)) if decay else 1.0
    )
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(order) < min(rows, BATCH_ROWS):
            order = torch.randperm(rows)
        chosen, order = order[:BATCH_ROWS], order[BATCH_ROWS:]
        step(X[chosen], y[chosen])
        schedule.step()
    model.eval()

    def mixture(X):
        """Means and standard deviations `(samples, n)` of the predictive mixture."""
        inputs = torch.as_tensor(scaling.inputs(X), dtype=torch.float32)
        torch.manual_seed(seed)
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(TEST_SAMPLES):
            parts = [model.likelihood(model(part)) for part in inputs.split(PREDICT_ROWS)]
        means = torch.cat([part.mean for part in parts], -1).double().numpy()
        return means, torch.cat([part.variance for part in parts], -1).double().sqrt().numpy()

    def moments(X, y):
        means, sds = mixture(X)
        return means.mean(0), logsumexp(norm.logpdf(y, means, sds), axis=0) - np.log(len(means))

    def quantiles(X, levels):
        noise = np.random.default_rng(seed).standard_normal((100, TEST_SAMPLES, 1))
        blocks = []
        for part in np.array_split(np.stack(mixture(X)), -(-len(X) // PREDICT_ROWS), axis=-1):
            draws = (part[0] + part[1] * noise).reshape(-1, part.shape[-1])
            blocks.append(np.quantile(draws, levels, axis=0).T)
        return np.concatenate(blocks)

    return Regression(moments, quantiles)
