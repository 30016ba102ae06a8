"""Deep Gaussian processes with the posterior you choose."""
