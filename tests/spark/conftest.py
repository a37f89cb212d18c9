"""A real Spark for the tests of this folder, one for all; without pyspark they are left to
`make test-spark`, without Java they are skipped."""

import os
import shutil
from importlib.util import find_spec

import pytest

from .running import MASTER

DEFAULTS = """
spark.sql.shuffle.partitions 2
spark.default.parallelism 2
spark.sql.warehouse.dir {folder}/warehouse
spark.driver.memory 1g
spark.local.dir {folder}
"""


def pytest_collection_modifyitems(config, items):
    ours = [item for item in items if "tests/spark/" in item.path.as_posix()]
    if find_spec("pyspark") is None:  # they have a target of their own: make test-spark
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]
        return
    has_java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    for item in ours:
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed .*socket:ResourceWarning"))  # of Py4J
        if not has_java:
            item.add_marker(pytest.mark.skip(reason="no Java on this machine"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of the Spark that all tests share, for writing tables; it is set up as an operator does."""
    from reticent.query.rows import spark as ours

    folder = tmp_path_factory.mktemp("spark")
    (folder / "spark-defaults.conf").write_text(DEFAULTS.format(folder=folder))
    before = os.environ.get("SPARK_CONF_DIR")
    os.environ["SPARK_CONF_DIR"] = str(folder)
    try:
        engine = ours.connected(MASTER)
    finally:
        if before is None:
            del os.environ["SPARK_CONF_DIR"]
        else:
            os.environ["SPARK_CONF_DIR"] = before
    yield engine._session
    engine.disconnect()
