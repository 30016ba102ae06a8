"""The local last layer: a GP on the deep GP's residuals, seen through each row's nearest training rows."""
