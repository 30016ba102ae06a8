"""The regression data sets that are read from files, with the facts each load is checked against.

Fingerprints were computed from copies of the official files; those of `year` are the published ones.
"""

from novidgp.datasets.info import CC_BY, DELVE, UCI, DatasetInfo, Fingerprint

REGRESSION = (
    DatasetInfo(
        name="boston",
        task="regression",
        target="median value of owner-occupied homes, 1000 dollars (MEDV)",
        licence="public (StatLib)",
        citation="Harrison and Rubinfeld (1978), Hedonic prices and the demand for clean air",
        source="http://lib.stat.cmu.edu/datasets/boston",
        files=("housing.data",),
        urls=("http://lib.stat.cmu.edu/datasets/boston",),
        fingerprint=Fingerprint((506, 13), 22.53281, 9.188012, feature_mean=70.07397, feature_sd=145.1555),
        note="Feature B encodes race; UCI withdrew the set. Kept to compare with published tables only.",
    ),
    DatasetInfo(
        name="energy",
        task="regression",
        target="heating load (Y1)",
        licence=CC_BY,
        citation="Tsanas and Xifara (2012), Accurate quantitative estimation of energy performance",
        source=f"{UCI}/dataset/242/energy+efficiency",
        files=("ENB2012_data.xlsx",),
        urls=(f"{UCI}/static/public/242/energy+efficiency.zip",),
        fingerprint=Fingerprint((768, 8), 22.3072, 10.08362, feature_mean=147.4217, feature_sd=229.5921),
    ),
    DatasetInfo(
        name="power",
        task="regression",
        target="net hourly electrical energy output, MW (PE)",
        licence=CC_BY,
        citation="Tufekci (2014), Prediction of full load electrical power output",
        source=f"{UCI}/dataset/294/combined+cycle+power+plant",
        files=("Folds5x2_pp.xlsx",),
        urls=(f"{UCI}/static/public/294/combined+cycle+power+plant.zip",),
        fingerprint=Fingerprint((9568, 4), 454.365, 17.0661, feature_mean=290.1313, feature_sd=418.0802),
        note="The workbook's five sheets are shuffles of the same rows; the first is read.",
    ),
    DatasetInfo(
        name="concrete",
        task="regression",
        target="compressive strength, MPa",
        licence=CC_BY,
        citation="Yeh (1998), Modeling of strength of high-performance concrete",
        source=f"{UCI}/dataset/165/concrete+compressive+strength",
        files=("Concrete_Data.xls",),
        urls=(f"{UCI}/static/public/165/concrete+compressive+strength.zip",),
        fingerprint=Fingerprint((1030, 8), 35.81796, 16.69763, feature_mean=298.6482, feature_sd=352.3836),
    ),
    DatasetInfo(
        name="yacht",
        task="regression",
        target="residuary resistance per unit weight of displacement",
        licence=CC_BY,
        citation="Gerritsma, Onnink and Versluis (1981), Yacht hydrodynamics",
        source=f"{UCI}/dataset/243/yacht+hydrodynamics",
        files=("yacht_hydrodynamics.data",),
        urls=(f"{UCI}/static/public/243/yacht+hydrodynamics.zip",),
        fingerprint=Fingerprint((308, 6), 10.49536, 15.13586, feature_mean=1.733682, feature_sd=2.564861),
    ),
    DatasetInfo(
        name="qsar",
        task="regression",
        target="acute aquatic toxicity, -log10 mol/l (LC50)",
        licence=CC_BY,
        citation="Cassotti et al. (2014), Prediction of acute aquatic toxicity toward Daphnia magna",
        source=f"{UCI}/dataset/505/qsar+aquatic+toxicity",
        files=("qsar_aquatic_toxicity.csv",),
        urls=(f"{UCI}/static/public/505/qsar+aquatic+toxicity.zip",),
        fingerprint=Fingerprint((546, 8), 4.658421, 1.663689, feature_mean=14.43611, feature_sd=37.06876),
    ),
    DatasetInfo(
        name="protein",
        task="regression",
        target="RMSD, the first column of the official file",
        licence=CC_BY,
        citation="Rana (2013), Physicochemical properties of protein tertiary structure",
        source=f"{UCI}/dataset/265/physicochemical+properties+of+protein+tertiary+structure",
        files=("CASP.csv",),
        urls=(f"{UCI}/static/public/265/physicochemical+properties+of+protein+tertiary+structure.zip",),
        fingerprint=Fingerprint((45730, 9), 7.748528, 6.118245, feature_mean=153948.0, feature_sd=468711.9),
    ),
    DatasetInfo(
        name="protein-log",
        task="regression",
        target="log(1 + RMSD) of protein's file: exact GPs and their approximations are often compared on it",
        licence=CC_BY,
        citation="Rana (2013), Physicochemical properties of protein tertiary structure",
        source=f"{UCI}/dataset/265/physicochemical+properties+of+protein+tertiary+structure",
        files=("CASP.csv",),
        urls=(f"{UCI}/static/public/265/physicochemical+properties+of+protein+tertiary+structure.zip",),
        fingerprint=Fingerprint((45730, 9), 1.891191, 0.7730036, feature_mean=153948.0, feature_sd=468711.9),
    ),
    DatasetInfo(
        name="kin8nm",
        task="regression",
        target="distance of the robot arm's end from a target",
        licence=DELVE,
        citation="Ghahramani (1996), The kin datasets, DELVE",
        source="https://www.cs.toronto.edu/~delve/data/kin/desc.html",
        files=("Dataset.data",),
        fingerprint=Fingerprint(
            (8192, 8), 0.7142835, 0.2635907, feature_mean=0.002472783, feature_sd=0.9053065
        ),
        note="DELVE's Dataset.data, or an ARFF or CSV copy of it, the target last.",
    ),
    DatasetInfo(
        name="estate",
        task="regression",
        target="house price of unit area",
        licence=CC_BY,
        citation="Yeh and Hsu (2018), Building real estate valuation models",
        source=f"{UCI}/dataset/477/real+estate+valuation+data+set",
        files=("Real estate valuation data set.xlsx",),
        urls=(f"{UCI}/static/public/477/real+estate+valuation+data+set.zip",),
        fingerprint=Fingerprint((414, 6), 37.98019, 13.59004, feature_mean=544.224, feature_sd=917.9174),
        note="The running number in the first column is dropped.",
    ),
    DatasetInfo(
        name="elevators",
        task="regression",
        target="log(Goal) minus its mean",
        licence="free for research (L. Torgo's collection; no licence stated)",
        citation="Torgo, Regression data sets: Elevators",
        source="https://www.dcc.fc.up.pt/~ltorgo/Regression/DataSets.html",
        files=("elevators.data", "elevators.test"),
        urls=("https://www.dcc.fc.up.pt/~ltorgo/Regression/elevators.tgz",),
        fingerprint=Fingerprint((16599, 18), 0.0, 0.2525744, feature_mean=0.0, feature_sd=65.75678),
        note=(
            "Published results use the deep-kernel-learning copy (elevators.mat): columns centred, target "
            "the centred logarithm. The raw files (or one ARFF with all rows) are brought to that form, up "
            "to the order of the rows."
        ),
    ),
    DatasetInfo(
        name="year",
        task="regression",
        target="year of release of a song",
        licence=CC_BY,
        citation="Bertin-Mahieux et al. (2011), The Million Song Dataset",
        source=f"{UCI}/dataset/203/yearpredictionmsd",
        files=("YearPredictionMSD.txt",),
        urls=(f"{UCI}/static/public/203/yearpredictionmsd.zip",),
        official_train_rows=463_715,
        fingerprint=Fingerprint((515_345, 90), 1998.397, 10.931),
        note="The official split keeps songs of one artist on one side: do not shuffle across it.",
    ),
    DatasetInfo(
        name="airline",
        task="regression",
        target="arrival delay, minutes (ArrDelay)",
        licence="public domain (US Bureau of Transportation Statistics)",
        citation="Hensman, Fusi and Lawrence (2013), Gaussian processes for big data; ASA Data Expo 2009",
        source="https://doi.org/10.7910/DVN/HG7NV7",
        files=("airline.csv",),
        fingerprint=Fingerprint(
            (2_055_733, 8), 10.01192, 39.14535, feature_mean=461.3632, feature_sd=675.0066
        ),
        note=(
            "US flights of January to April 2008. A CSV with columns Month, DayofMonth, DayOfWeek, "
            "plane_age, AirTime, Distance, ArrTime, DepTime (both hhmm) and ArrDelay; plane_age is 2008 "
            "minus the year of manufacture, rows with a missing value are left out."
        ),
    ),
)
