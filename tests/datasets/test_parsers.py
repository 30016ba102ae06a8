"""Each official layout, written small and read back."""

import gzip
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from novidgp.datasets import DatasetError, dataset_info
from novidgp.datasets.parsers import AIRLINE_COLUMNS, PARSERS, parse
from novidgp.datasets.raw import RawFiles
from novidgp.datasets.registry import REGISTRY

ROWS = 12


def read(name: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    return parse(RawFiles(dataset_info(name), path))


def table(columns: int) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(ROWS, columns)).round(3)
    values[:, -1] = np.abs(values[:, -1]) + 1.0
    return values


def write_text(path: Path, values: np.ndarray, separator: str = ",", head: str = "", tail: str = "") -> Path:
    lines = [separator.join(f"{value:g}" for value in row) for row in values]
    path.write_text(head + "\n".join(lines) + "\n" + tail)
    return path


def write_biff2(path: Path, header: list[str], values: np.ndarray) -> Path:
    """The oldest .xls format, the only one short enough to write by hand."""

    def record(code: int, body: bytes) -> bytes:
        return struct.pack("<HH", code, len(body)) + body

    attributes = b"\0\0\0"
    records = [record(0x0009, struct.pack("<HH", 0x0007, 0x0010))]
    for column, text in enumerate(header):
        body = struct.pack("<HH", 0, column) + attributes + bytes([len(text)]) + text.encode()
        records.append(record(0x0004, body))
    for (row, column), value in np.ndenumerate(values):
        body = struct.pack("<HH", row + 1, column) + attributes + struct.pack("<d", value)
        records.append(record(0x0003, body))
    path.write_bytes(b"".join([*records, record(0x000A, b"")]))
    return path


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def assert_parsed(parsed: tuple[np.ndarray, np.ndarray], X: np.ndarray, y: np.ndarray) -> None:
    np.testing.assert_allclose(parsed[0], X, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(parsed[1], y, rtol=1e-6, atol=1e-6)


def test_every_set_read_from_a_file_has_a_parser_and_names_its_files():
    from_files = {info.name for info in REGISTRY.values() if not info.builtin}
    assert from_files == set(PARSERS)
    assert all(REGISTRY[name].files for name in from_files)


@pytest.mark.parametrize(
    ("name", "columns", "separator", "head", "target"),
    [
        ("yacht", 7, "  ", "", -1),
        ("qsar", 9, ";", "", -1),
        ("protein", 10, ",", "RMSD,F1,F2,F3,F4,F5,F6,F7,F8,F9\n", 0),
        ("kin8nm", 9, ",", "", -1),
        ("kin8nm", 9, " ", "", -1),
        ("kin8nm", 9, ",", "% comment\n@relation kin8nm\n@attribute theta1 real\n\n@data\n", -1),
        ("year", 91, ",", "", 0),
    ],
)
def test_text_tables(tmp_path, name, columns, separator, head, target):
    values = table(columns)
    path = write_text(tmp_path / "any.name", values, separator, head, tail="\n")
    X = np.delete(values, target, axis=1)
    assert_parsed(read(name, path), X, values[:, target])


def test_protein_has_a_second_target_on_a_logarithmic_scale(tmp_path):
    values = np.abs(table(10))
    path = write_text(tmp_path / "CASP.csv", values, ",", "RMSD,F1,F2,F3,F4,F5,F6,F7,F8,F9\n", tail="\n")
    assert_parsed(read("protein-log", path), values[:, 1:], np.log(1.0 + values[:, 0]))


def test_space_around_the_rows_and_dos_line_ends_do_not_matter(tmp_path):
    values = table(7)
    rows = ["  " + "   ".join(f"{value:g}" for value in row) + " \r\n" for row in values]
    path = tmp_path / "yacht_hydrodynamics.data"
    path.write_bytes("".join([*rows, " \r\n"]).encode())
    assert_parsed(read("yacht", path), values[:, :6], values[:, 6])


@pytest.mark.parametrize(
    ("name", "file", "columns", "target", "features"),
    [
        ("energy", "ENB2012_data.xlsx", 10, 8, range(8)),
        ("power", "Folds5x2_pp.xlsx", 5, 4, range(4)),
        ("concrete", "Concrete_Data.xlsx", 9, 8, range(8)),
        ("estate", "Real estate valuation data set.xlsx", 8, 7, range(1, 7)),
    ],
)
def test_workbooks_are_read_from_their_first_sheet(tmp_path, name, file, columns, target, features):
    values = table(columns)
    path = tmp_path / file
    with pd.ExcelWriter(path) as workbook:
        pd.DataFrame(values).to_excel(workbook, sheet_name="Sheet1", index=False)
        pd.DataFrame(values[::-1]).to_excel(workbook, sheet_name="Sheet2", index=False)
    assert_parsed(read(name, path), values[:, list(features)], values[:, target])


def test_energy_ignores_empty_rows_and_columns_of_the_workbook(tmp_path):
    values = table(10)
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(10)])
    frame["Unnamed"] = np.nan
    frame.loc[ROWS + 3] = np.nan
    frame.to_excel(tmp_path / "ENB2012_data.xlsx", index=False)
    assert_parsed(read("energy", tmp_path / "ENB2012_data.xlsx"), values[:, :8], values[:, 8])


def test_concrete_is_read_from_the_old_excel_format(tmp_path):
    values = table(9)
    path = write_biff2(tmp_path / "Concrete_Data.xls", [f"c{i}" for i in range(9)], values)
    assert_parsed(read("concrete", path), values[:, :8], values[:, 8])


def test_boston_is_read_from_both_official_layouts(tmp_path):
    values = table(14)
    uci = write_text(tmp_path / "housing.data", values, "  ")
    assert_parsed(read("boston", uci), values[:, :13], values[:, 13])
    halves = [part for row in values for part in (row[:11], row[11:])]
    lines = [" ".join(f"{value:g}" for value in half) for half in halves]
    statlib = tmp_path / "boston"
    statlib.write_text(" The Boston house-price data, 1978.\n pages 81-102.\n\n" + "\n ".join(lines) + "\n")
    assert_parsed(read("boston", statlib), values[:, :13], values[:, 13])


def test_elevators_raw_files_and_arff_come_out_in_the_form_of_the_mat_file(tmp_path):
    values = table(19)
    centred = np.column_stack([values[:, :18], np.log(values[:, 18])])
    centred -= centred.mean(axis=0)
    write_text(tmp_path / "elevators.data", values[:8])
    write_text(tmp_path / "elevators.test", values[8:])
    arff = write_text(tmp_path / "elevators.arff", values, head="@relation e\n@attribute a real\n@data\n")
    savemat(tmp_path / "elevators.mat", {"data": centred})
    for path in (tmp_path, tmp_path / "elevators.data", arff, tmp_path / "elevators.mat"):
        assert_parsed(read("elevators", path), centred[:, :18], centred[:, 18])


def test_elevators_refuses_a_target_that_has_no_logarithm(tmp_path):
    path = write_text(tmp_path / "elevators.csv", -table(19))
    with pytest.raises(DatasetError, match="elevators: the target Goal"):
        read("elevators", path)


def test_airline_columns_are_found_by_name(tmp_path):
    names = [*AIRLINE_COLUMNS, "ArrDelay"]
    values = table(9)
    frame = pd.DataFrame(values, columns=names)
    frame["UniqueCarrier"] = "WN"
    frame[frame.columns[::-1]].to_csv(tmp_path / "airline.csv", index=False)
    assert_parsed(read("airline", tmp_path / "airline.csv"), values[:, :8], values[:, 8])
    frame.drop(columns="plane_age").to_csv(tmp_path / "airline.csv", index=False)
    with pytest.raises(DatasetError, match="plane_age"):
        read("airline", tmp_path / "airline.csv")


@pytest.mark.parametrize(
    ("name", "columns", "separator", "head", "labels"),
    [
        ("wine_red_cls", 12, ";", '"fixed acidity";"quality"\n', range(3, 9)),
        ("wine_white_cls", 12, ";", '"fixed acidity";"quality"\n', range(3, 10)),
        ("german", 25, "   ", "", (1, 2)),
        ("twonorm", 21, ", ", "@relation twonorm\n@attribute At1 real\n@data\n", (0, 1)),
    ],
)
def test_class_tables_number_their_classes_in_order(tmp_path, name, columns, separator, head, labels):
    values = table(columns)
    values[:, -1] = np.resize(labels, ROWS)
    if name.startswith("wine"):
        head = ";".join(f'"some name {i}"' for i in range(columns)) + "\n"
    path = write_text(tmp_path / "file", values, separator, head)
    X, y = read(name, path)
    assert y.dtype == np.int64
    assert_parsed((X, y), values[:, :-1], np.resize(range(len(labels)), ROWS))


def test_ringnorm_features_are_standardised(tmp_path):
    values = table(21)
    values[:, -1] = np.resize([-1, 1], ROWS)
    X, y = read("ringnorm", write_text(tmp_path / "Dataset.data", values, " "))
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(X.std(axis=0), 1.0, rtol=1e-5)
    assert y.tolist() == [0, 1] * (ROWS // 2)


def test_abalone_codes_sex_and_cuts_rings_in_three(tmp_path):
    numbers = ",".join(["0.5"] * 7)
    rows = [f"{sex},{numbers},{rings}" for sex, rings in zip("MFIMFI", (1, 8, 9, 10, 11, 29), strict=True)]
    (tmp_path / "abalone.data").write_text("\n".join(rows) + "\n")
    X, y = read("abalone_cls", tmp_path / "abalone.data")
    assert X.shape == (6, 8)
    assert X[:, 0].tolist() == [2, 0, 1, 2, 0, 1]
    assert y.tolist() == [0, 0, 1, 1, 2, 2]


def write_wilt(directory: Path) -> None:
    head = "class,GLCM_pan,Mean_Green,Mean_Red,Mean_NIR,SD_pan\n"
    (directory / "training.csv").write_text(head + "w,1,2,3,4,5\nn,2,3,4,5,6\n")
    (directory / "testing.csv").write_text(head + "n,3,4,5,6,7\n")


def test_wilt_test_rows_follow_the_training_rows(tmp_path):
    write_wilt(tmp_path)
    expected = np.arange(5) + np.array([[1], [2], [3]])
    for path in (tmp_path, tmp_path / "training.csv", tmp_path / "testing.csv"):
        assert_parsed(read("wilt", path), expected, np.array([1, 0, 0]))


def test_an_unknown_word_in_a_coded_column_is_refused(tmp_path):
    write_wilt(tmp_path)
    (tmp_path / "testing.csv").write_text("class,a,b,c,d,e\nz,1,2,3,4,5\n")
    with pytest.raises(DatasetError, match=r"wilt: .*'z', expected one of n, w"):
        read("wilt", tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_images(tmp_path, name, packed):
    generator = np.random.default_rng(1)
    parts = []
    for rows in (3, 2):
        parts.append(generator.integers(0, 256, size=(rows, 28, 28), dtype=np.uint8))
        parts.append(generator.integers(0, 10, size=rows, dtype=np.uint8))
    for file, values in zip(dataset_info(name).files, parts, strict=True):
        if packed:
            (tmp_path / f"{file}.gz").write_bytes(gzip.compress(idx(values)))
        else:
            (tmp_path / file).write_bytes(idx(values))
    X, y = read(name, tmp_path)
    assert X.dtype == np.uint8
    np.testing.assert_array_equal(X, np.concatenate(parts[::2]))
    np.testing.assert_array_equal(y, np.concatenate(parts[1::2]))
    file = next(tmp_path.glob("train-images*"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=f"{name}: .*(complete|cut short)"):
        read(name, tmp_path)


def test_idx_refuses_another_format(tmp_path):
    for file in dataset_info("mnist").files:
        (tmp_path / file).write_bytes(b"<html>not found</html>")
    with pytest.raises(DatasetError, match="mnist: train-images-idx3-ubyte is not an idx file"):
        read("mnist", tmp_path)


def test_cifar_binary_archive_comes_out_channels_last(tmp_path):
    generator = np.random.default_rng(2)
    archive = tmp_path / "cifar-10-binary.tar.gz"
    labels, images = [], []
    with tarfile.open(archive, "w:gz") as tar:
        for file in dataset_info("cifar10").files:
            label, image = generator.integers(10), generator.integers(0, 256, (3, 32, 32), dtype=np.uint8)
            labels.append(label)
            images.append(image.transpose(1, 2, 0))
            (tmp_path / file).write_bytes(bytes([label]) + image.tobytes())
            tar.add(tmp_path / file, f"cifar-10-batches-bin/{file}")
    for path in (archive, tmp_path):
        X, y = read("cifar10", path)
        np.testing.assert_array_equal(X, images)
        np.testing.assert_array_equal(y, labels)
    (tmp_path / "test_batch.bin").write_bytes(b"\0" * 100)
    with pytest.raises(DatasetError, match=r"cifar10: test_batch.bin has 100 bytes"):
        read("cifar10", tmp_path)


def test_a_zip_is_searched_at_any_depth(tmp_path):
    values = table(9)
    inner = write_text(tmp_path / "qsar_aquatic_toxicity.csv", values, ";")
    with zipfile.ZipFile(tmp_path / "q.zip", "w") as archive:
        archive.write(inner, "folder/qsar_aquatic_toxicity.csv")
    assert_parsed(read("qsar", tmp_path / "q.zip"), values[:, :8], values[:, 8])
    with pytest.raises(DatasetError, match=r"yacht: yacht_hydrodynamics.data is missing"):
        read("yacht", tmp_path / "q.zip")


def test_a_damaged_zip_is_refused(tmp_path):
    (tmp_path / "q.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DatasetError, match=r"qsar: .*damaged or cut short"):
        read("qsar", tmp_path / "q.zip")


def test_a_missing_companion_file_is_named(tmp_path):
    write_wilt(tmp_path)
    (tmp_path / "testing.csv").unlink()
    with pytest.raises(DatasetError, match=r"wilt: testing.csv is missing"):
        read("wilt", tmp_path / "training.csv")


def test_a_line_cut_short_is_refused(tmp_path):
    path = write_text(tmp_path / "yacht_hydrodynamics.data", table(7), " ", tail="1 2 3\n")
    with pytest.raises(DatasetError, match=f"yacht: row {ROWS + 1}, column 3"):
        read("yacht", path)


def test_a_boston_file_cut_short_is_refused(tmp_path):
    path = write_text(tmp_path / "housing.data", table(14), " ", tail="1 2 3\n")
    with pytest.raises(DatasetError, match=r"boston: .*expected 14 a row"):
        read("boston", path)


@pytest.mark.parametrize("content", ["", "<html>\n<body>Not found</body>\n</html>\n"])
@pytest.mark.parametrize("name", ["yacht", "boston", "protein", "energy", "year", "german", "airline"])
def test_a_file_that_is_no_table_is_refused(tmp_path, name, content):
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(DatasetError, match=name):
        read(name, path)
