"""A call that does not return says which one it is and what Spark's tasks are doing."""

import re
import time

import pytest
from pyspark.sql import SparkSession

from bench.harness.spark_driver import SparkDriver
from tests.spark.conftest import SORT_SHUFFLE, StartDriver

pytestmark = pytest.mark.spark


def sleeping(spark: SparkSession) -> None:
    spark.sparkContext.parallelize([1], 1).foreach(lambda _: time.sleep(600))


def test_a_call_that_does_not_return_shows_the_stacks_of_the_tasks(start_driver: StartDriver) -> None:
    driver: SparkDriver = start_driver(SORT_SHUFFLE)
    driver.call(in_python)  # so that the next one is there soon
    told = r"^tests\.spark\.test_jvm_threads\.sleeping: no answer within 10 s.*?\n\"Executor task launch.*PythonRunner"
    rest = r'"dag-scheduler.*Heap.*in sleeping.*java S'
    with pytest.raises(TimeoutError, match=re.compile(f"{told}.*{rest}", re.DOTALL)):
        driver.call(sleeping, timeout=10)
    assert not driver.usable
    with pytest.raises(TimeoutError, match=r"test_jvm_threads\.sleeping did not answer before"):
        driver.renew({})


def in_python(spark: SparkSession) -> None:
    spark.sparkContext.parallelize([1], 1).foreach(lambda _: None)
