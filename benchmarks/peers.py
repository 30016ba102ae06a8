"""What other people would run: baselines from GPyTorch and scikit-learn, on the benchmark's own splits.

Every method is a function with one signature,

    method(X_train, y_train, X_test, y_test, *, seed, steps, threads) -> {rmse, nll, coverage90, seconds, ...}

on inputs already scaled and targets already standardised (both on the training rows only), so RMSE and NLL
are in standardised units. `y_test` is used for scoring only; `seconds` is fitting plus prediction.

    python benchmarks/peers.py --datasets energy yacht --methods gpytorch_dsvi --seeds 0 1 --out peers.jsonl

appends one JSON line per finished fit, and skips the fits the file already holds (`steps` is null for methods
without steps). Data come from $NOVIDGP_DATA. Needs the `peers` extra (torch, gpytorch).
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from novidgp.bench.protocols import split

Scores = dict[str, float]


# Protocol "random": a shuffled 90/10 split, scaled on the training rows.


def load_split(dataset: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X_train, y_train, X_test, y_test in units of the training rows' mean and standard deviation."""
    with np.load(Path(os.environ["NOVIDGP_DATA"]) / f"{dataset}.npz") as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    rows = split(len(X), "random", seed)
    train, test = rows.train, rows.test
    centre, scale = X[train].mean(0), X[train].std(0)
    constant = scale <= 1e-9 * (1 + np.abs(centre))
    X = (X - centre) / np.where(constant, np.inf, scale)  # constant columns become 0
    y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def mixture_scores(y: np.ndarray, means: np.ndarray, sds: np.ndarray) -> Scores:
    """Scores of an equally weighted mixture of Gaussians: `means` and `sds` are (components, n).

    A target is in the central 90 % interval if and only if the mixture CDF there is in [.05, .95].
    """
    log_density = logsumexp(norm.logpdf(y, means, sds), axis=0) - np.log(len(means))
    probability = norm.cdf(y, means, sds).mean(0)
    return {
        "rmse": float(np.sqrt(np.mean((y - means.mean(0)) ** 2))),
        "nll": float(-log_density.mean()),
        "coverage90": float(np.mean((probability >= 0.05) & (probability <= 0.95))),
    }


def clocks() -> tuple[float, float]:
    """Wall and CPU time; the second is the one to compare if the machine was shared."""
    return time.perf_counter(), time.process_time()


def elapsed(start: tuple[float, float]) -> Scores:
    wall, cpu = clocks()
    return {"seconds": wall - start[0], "cpu_seconds": cpu - start[1]}


# GPyTorch: doubly stochastic variational inference in a two-layer deep GP.


class Layer(DeepGPLayer):
    """`dim_out` independent GPs (None: one, the last), each with its own RBF-ARD kernel and inducing inputs.

    The variational distribution is set here because GPyTorch would start it at the prior, which drowns a
    hidden layer in noise. The lengthscales are jittered so that the units do not stay copies of one another.
    """

    def __init__(self, Z, dim_out, mean, *, lengthscale, variance, q_std):
        batch = torch.Size([]) if dim_out is None else torch.Size([dim_out])
        M, dim_in = Z.shape[-2:]
        q = CholeskyVariationalDistribution(M, batch_shape=batch, mean_init_std=0.0)
        strategy = VariationalStrategy(self, Z.expand(*batch, M, dim_in).clone(), q)
        super().__init__(strategy, dim_in, dim_out)
        q.chol_variational_covar.data.copy_(q_std * torch.eye(M).expand(*batch, M, M))
        strategy.variational_params_initialized.fill_(1)
        self.mean_module = mean
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=dim_in, batch_shape=batch)
        rbf.lengthscale = lengthscale * torch.exp(0.3 * torch.randn(*batch, 1, dim_in))
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=batch)
        self.covar_module.outputscale = torch.full(batch, variance)

    def forward(self, x):
        """Prior at `x`."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class TwoLayerDGP(DeepGP):
    """A hidden layer around a learned linear map (started at the identity, or at PCA), then a scalar GP."""

    def __init__(
        self, X, *, inducing, width, hidden_q_std, last_q_std, hidden_variance, lengthscale, noise_std, seed
    ):
        super().__init__()
        d = X.shape[1]
        projection = torch.eye(d) if width == d else torch.linalg.svd(X, full_matrices=False).Vh[:width].T
        kmeans = KMeans(min(inducing, len(X)), n_init=1, random_state=seed).fit(X.numpy())
        Z = torch.as_tensor(kmeans.cluster_centers_, dtype=X.dtype)
        linear = gpytorch.means.LinearMean(d, batch_shape=torch.Size([width]))
        linear.weights.data.copy_(projection.T[..., None])
        linear.bias.data.zero_()
        self.hidden = Layer(
            Z, width, linear, lengthscale=lengthscale * d**0.5, variance=hidden_variance, q_std=hidden_q_std
        )
        self.last = Layer(
            Z @ projection,
            None,
            gpytorch.means.ConstantMean(),
            lengthscale=lengthscale * width**0.5,
            variance=1.0,
            q_std=last_q_std,
        )
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
        )
        self.likelihood.noise = noise_std**2

    def forward(self, x):
        """Distribution of the last layer, one batch member per sample of the hidden layer."""
        return self.last(self.hidden(x))


def gpytorch_dsvi(
    X_train,
    y_train,
    X_test,
    y_test,
    *,
    seed: int,
    steps: int = 1000,
    threads: int = 1,
    inducing: int = 100,
    width: int | None = None,
    batch_size: int = 1000,
    train_samples: int = 10,
    test_samples: int = 100,
    learning_rate: float = 0.05,
    cosine: bool = True,
    hidden_q_std: float = 1e-2,
    last_q_std: float = 0.1,
    hidden_variance: float = 0.1,
    lengthscale: float = 1.0,
    noise_std: float = 0.5,
) -> Scores:
    """Two-layer deep GP by DSVI (Salimbeni & Deisenroth 2017) as GPyTorch's users write it.

    `width` is the number of hidden units, min(D, 10) if None; `lengthscale` is in units of sqrt(dim in).
    """
    start = clocks()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    X, y, X_new = (torch.as_tensor(a, dtype=torch.float32) for a in (X_train, y_train, X_test))
    n, d = X.shape
    model = TwoLayerDGP(
        X,
        inducing=inducing,
        width=width or min(d, 10),
        hidden_q_std=hidden_q_std,
        last_q_std=last_q_std,
        hidden_variance=hidden_variance,
        lengthscale=lengthscale,
        noise_std=noise_std,
        seed=seed,
    )
    objective = DeepApproximateMLL(VariationalELBO(model.likelihood, model, num_data=n))
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda t: 0.5 * (1 + np.cos(np.pi * t / steps)) if cosine else 1.0
    )
    model.train()
    order = torch.empty(0, dtype=torch.long)
    with gpytorch.settings.num_likelihood_samples(train_samples):
        for _ in range(steps):
            if n <= batch_size:
                rows = slice(None)
            else:
                if len(order) < batch_size:
                    order = torch.randperm(n)
                rows, order = order[:batch_size], order[batch_size:]
            optimiser.zero_grad()
            loss = -objective(model(X[rows]), y[rows])
            loss.backward()
            optimiser.step()
            schedule.step()

    model.eval()
    means, variances = [], []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(test_samples):
        for chunk in X_new.split(500):
            predictive = model.likelihood(model(chunk))
            means.append(predictive.mean)
            variances.append(predictive.variance)
    means = torch.cat(means, -1).double().numpy()
    sds = torch.cat(variances, -1).double().sqrt().numpy()
    return mixture_scores(y_test, means, sds) | elapsed(start)


# scikit-learn


def exact_gp(X_train, y_train, X_test, y_test, *, seed: int, steps=None, threads: int = 1) -> Scores:
    """Exact GP regression, RBF-ARD kernel and noise by marginal likelihood (one start and two restarts)."""
    start = clocks()
    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(np.full(X_train.shape[1], 2.0), (5e-2, 1e3))
    kernel += WhiteKernel(0.05, (1e-6, 2.0))
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a lengthscale at its bound: an irrelevant input
        gp = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=seed).fit(X_train, y_train)
        mean, sd = gp.predict(X_test, return_std=True)  # WhiteKernel is in the kernel: sd includes the noise
    return mixture_scores(y_test, mean[None], sd[None]) | elapsed(start)


def hist_gb(X_train, y_train, X_test, y_test, *, seed: int, steps=None, threads: int = 1) -> Scores:
    """Gradient-boosted trees; size and number of trees by 5-fold cross-validation on the training rows.

    The predictive distribution is a Gaussian with the standard deviation of the cross-validation residuals.
    """
    start = clocks()
    folds = list(KFold(5, shuffle=True, random_state=seed).split(X_train))
    best = (np.inf, 0, {})
    with threadpool_limits(threads):
        for leaves, least in ((8, 5), (8, 20), (31, 5), (31, 20)):
            options = {"max_leaf_nodes": leaves, "min_samples_leaf": least, "early_stopping": False}
            squared_error = np.zeros(500)
            for fit, held_out in folds:
                trees = HistGradientBoostingRegressor(max_iter=500, random_state=seed, **options)
                trees.fit(X_train[fit], y_train[fit])
                for i, mean in enumerate(trees.staged_predict(X_train[held_out])):
                    squared_error[i] += np.sum((y_train[held_out] - mean) ** 2)
            n_trees = int(np.argmin(squared_error))
            best = min(best, (squared_error[n_trees], n_trees + 1, options), key=lambda triple: triple[0])
        total, n_trees, options = best
        trees = HistGradientBoostingRegressor(max_iter=n_trees, random_state=seed, **options)
        mean = trees.fit(X_train, y_train).predict(X_test)
    sd = np.full_like(mean, np.sqrt(total / len(y_train)))
    return mixture_scores(y_test, mean[None], sd[None]) | elapsed(start)


METHODS: dict[str, Callable[..., Scores]] = {
    "gpytorch_dsvi": gpytorch_dsvi,
    "exact_gp": exact_gp,
    "hist_gb": hist_gb,
}
EXACT_GP_MAX_ROWS = 1100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--datasets", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=1000, help="of the methods that take steps")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    identity = ("dataset", "method", "seed", "steps", "protocol")
    done = set()
    if args.out.exists():
        done = {tuple(json.loads(line)[k] for k in identity) for line in args.out.read_text().splitlines()}
    for dataset in args.datasets:
        for seed in args.seeds:
            for method in args.methods:
                steps = args.steps if method == "gpytorch_dsvi" else None
                fit = dict(zip(identity, (dataset, method, seed, steps, "random"), strict=True))
                if tuple(fit.values()) in done:
                    continue
                data = load_split(dataset, seed)
                if method == "exact_gp" and len(data[0]) > EXACT_GP_MAX_ROWS:
                    continue
                scores = METHODS[method](*data, seed=seed, steps=steps, threads=args.threads)
                with args.out.open("a") as file:
                    file.write(json.dumps(fit | scores) + "\n")
                line = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
                print(f"{dataset:10s} {method:14s} seed {seed}  {line}", flush=True)


if __name__ == "__main__":
    main()
