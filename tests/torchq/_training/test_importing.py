"""The checks that keep a job from submitting itself."""

from concurrent.futures import ThreadPoolExecutor

from torchq._errors import Refused
from torchq._training.importing import Importing, refuse_while_importing


def test_nothing_is_submitted_while_a_job_imports_from_any_thread() -> None:
    refuse_while_importing()
    with Importing("train"), ThreadPoolExecutor(1) as pool:
        error = pool.submit(refuse_while_importing).exception()
    assert isinstance(error, Refused)
    assert str(error).startswith("the job imports train, which submits a job again: put what submits under `if __name")
    refuse_while_importing()
