"""A run small enough to be audited in seconds."""

import pytest

from rebafl.privacy.audit import audit_run
from support.clouds import PLAN, make_clouds, run_clouds
from support.toy import quiet


@pytest.fixture(scope="session")
def clouds():
    return make_clouds()


@pytest.fixture(scope="session")
def run(tmp_path_factory, clouds):
    return run_clouds(tmp_path_factory.mktemp("privacy") / "run", clouds).path


@pytest.fixture(scope="session")
def audited(run, clouds):
    return audit_run(run, PLAN, data=clouds, say=quiet)
