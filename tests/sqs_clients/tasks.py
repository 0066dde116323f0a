"""A Celery application on the SQS port; ``LMQ_TEST_SQS`` is its address, the keys are in the environment."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("tasks", broker=os.environ["LMQ_TEST_BROKER"])
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "visibility_timeout": 60,
        "queue_name_prefix": os.environ["LMQ_TEST_PREFIX"],
        "wait_time_seconds": 5,
        "polling_interval": 0.1,
    },
    task_acks_late=True,
    task_default_queue="tasks",
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
)


@app.task(bind=True, max_retries=3)
def note(self: Any, text: str) -> None:
    """Append a line to a file at the second attempt."""
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    with open(os.environ["LMQ_TEST_FILE"], "a", encoding="utf-8") as file:  # noqa: PTH123 - appended in one write
        file.write(f"{text}\n")
