"""Settings may grow, but every committed result keeps its digest and its name."""

import json

import pytest

from golden.make import LABELS, label_and_digest, result_files

RECORDED = json.loads(LABELS.read_text())
FILES = result_files()


def test_no_recorded_result_is_gone():
    assert RECORDED.keys() <= FILES.keys()
    assert len(RECORDED) >= 200


def test_the_committed_results_have_the_digests_and_labels_of_version_0_1():
    found = {name: label_and_digest(FILES[name]) for name in RECORDED}
    assert {name: both for name, both in found.items() if both != RECORDED[name]} == {}


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES.values()}), ids=lambda folder: folder.name)
def test_every_committed_result_is_named_by_its_label(folder):
    found = {path.stem: label_and_digest(path)["label"] for path in FILES.values() if path.parent == folder}
    assert {stem: label for stem, label in found.items() if stem != label} == {}
