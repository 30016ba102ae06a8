"""The classification data sets that are read from files, with the facts each load is checked against.

Class counts are in the order of the class index in `y`. Fingerprints were computed from copies of
the official files; those of `cifar10` are the published ones.
"""

from novidgp.datasets.info import CC_BY, DELVE, UCI, DatasetInfo, Fingerprint

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

CLASSIFICATION = (
    DatasetInfo(
        name="wine_red_cls",
        task="classification",
        target="quality 3..8 as class 0..5",
        licence=CC_BY,
        citation="Cortez et al. (2009), Modeling wine preferences",
        source=f"{UCI}/dataset/186/wine+quality",
        files=("winequality-red.csv",),
        urls=(f"{UCI}/static/public/186/wine+quality.zip",),
        fingerprint=Fingerprint(
            (1599, 11),
            class_counts=(10, 53, 681, 638, 199, 18),
            feature_mean=8.134219,
            feature_sd=16.72653,
        ),
    ),
    DatasetInfo(
        name="wine_white_cls",
        task="classification",
        target="quality 3..9 as class 0..6",
        licence=CC_BY,
        citation="Cortez et al. (2009), Modeling wine preferences",
        source=f"{UCI}/dataset/186/wine+quality",
        files=("winequality-white.csv",),
        urls=(f"{UCI}/static/public/186/wine+quality.zip",),
        fingerprint=Fingerprint(
            (4898, 11),
            class_counts=(20, 163, 1457, 2198, 880, 175, 5),
            feature_mean=18.43269,
            feature_sd=41.54495,
        ),
    ),
    DatasetInfo(
        name="abalone_cls",
        task="classification",
        target="rings: at most 8, 9 to 10, at least 11",
        licence=CC_BY,
        citation="Nash et al. (1994), The population biology of abalone",
        source=f"{UCI}/dataset/1/abalone",
        files=("abalone.data",),
        urls=(f"{UCI}/static/public/1/abalone.zip",),
        fingerprint=Fingerprint(
            (4177, 8), class_counts=(1407, 1323, 1447), feature_mean=0.4664791, feature_sd=0.4686155
        ),
        note="The first feature, Sex, is coded F 0, I 1, M 2.",
    ),
    DatasetInfo(
        name="german",
        task="classification",
        target="credit risk: good 0, bad 1",
        licence=CC_BY,
        citation="Hofmann (1994), Statlog (German credit data)",
        source=f"{UCI}/dataset/144/statlog+german+credit+data",
        files=("german.data-numeric",),
        urls=(f"{UCI}/static/public/144/statlog+german+credit+data.zip",),
        fingerprint=Fingerprint(
            (1000, 24), class_counts=(700, 300), feature_mean=4.931792, feature_sd=11.78952
        ),
    ),
    DatasetInfo(
        name="wilt",
        task="classification",
        target="land cover: other 0, diseased tree 1",
        licence=CC_BY,
        citation="Johnson, Tateishi and Hoan (2013), A hybrid pansharpening approach",
        source=f"{UCI}/dataset/285/wilt",
        files=("training.csv", "testing.csv"),
        urls=(f"{UCI}/static/public/285/wilt.zip",),
        official_train_rows=4339,
        fingerprint=Fingerprint(
            (4839, 5),
            class_counts=(4578, 261),
            train_class_counts=(4265, 74),
            feature_mean=207.412,
            feature_sd=193.3367,
        ),
        note="The official test rows have ten times the share of diseased trees of the training rows.",
    ),
    DatasetInfo(
        name="twonorm",
        task="classification",
        target="which of two unit Gaussians",
        licence=DELVE,
        citation="Breiman (1996), Bias, variance and arcing classifiers",
        source="https://www.cs.toronto.edu/~delve/data/twonorm/desc.html",
        files=("Dataset.data",),
        fingerprint=Fingerprint(
            (7400, 20), class_counts=(3703, 3697), feature_mean=0.002311407, feature_sd=1.092597
        ),
        note="DELVE's Dataset.data, or a KEEL, ARFF or CSV copy of it, the class last.",
    ),
    DatasetInfo(
        name="ringnorm",
        task="classification",
        target="which of two Gaussians, one of four times the variance",
        licence=DELVE,
        citation="Breiman (1996), Bias, variance and arcing classifiers",
        source="https://www.cs.toronto.edu/~delve/data/ringnorm/desc.html",
        files=("Dataset.data",),
        fingerprint=Fingerprint(
            (7400, 20), class_counts=(3664, 3736), feature_mean=0.0, feature_sd=0.9999324
        ),
        note="Features are standardised on import: the copies in use differ in units.",
    ),
    DatasetInfo(
        name="mnist",
        task="classification",
        target="digit",
        licence="CC BY-SA 3.0",
        citation="LeCun, Cortes and Burges (1998), The MNIST database of handwritten digits",
        source="http://yann.lecun.com/exdb/mnist/",
        files=IDX_FILES,
        urls=tuple(f"https://storage.googleapis.com/cvdf-datasets/mnist/{file}.gz" for file in IDX_FILES),
        official_train_rows=60_000,
        fingerprint=Fingerprint(
            (70_000, 28, 28),
            class_counts=(6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958),
            train_class_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            feature_mean=33.31842,
            feature_sd=78.56749,
        ),
        note="Fetched from the CVDF mirror: the original page no longer serves the files.",
    ),
    DatasetInfo(
        name="fashion_mnist",
        task="classification",
        target="kind of clothing",
        licence="MIT",
        citation="Xiao, Rasul and Vollgraf (2017), Fashion-MNIST",
        source="https://github.com/zalandoresearch/fashion-mnist",
        files=IDX_FILES,
        urls=tuple(
            f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}.gz" for file in IDX_FILES
        ),
        official_train_rows=60_000,
        fingerprint=Fingerprint(
            (70_000, 28, 28),
            class_counts=(7000,) * 10,
            train_class_counts=(6000,) * 10,
            feature_mean=72.94035,
            feature_sd=90.02118,
        ),
    ),
    DatasetInfo(
        name="cifar10",
        task="classification",
        target="kind of object",
        licence="free for research (no licence stated)",
        citation="Krizhevsky (2009), Learning multiple layers of features from tiny images",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        files=(*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin"),
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        official_train_rows=50_000,
        fingerprint=Fingerprint(
            (60_000, 32, 32, 3),
            class_counts=(6000,) * 10,
            train_class_counts=(5000,) * 10,
            feature_mean=120.7076,
            feature_sd=64.15,
        ),
        note="Only the binary version is read; the Python version is a pickle, which can run code.",
    ),
)
