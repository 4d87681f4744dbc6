"""Entry point of `python -m berth.worker`, run by the pods of a session."""

import logging
import os
import sys

from berth.worker.config import read_config
from berth.worker.work import Worker


def main() -> int:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        config = read_config()
    except (KeyError, ValueError) as error:
        logging.critical("This is not a session pod: %s is missing or invalid.", error)  # noqa: LOG015
        return 2
    return Worker(config).run()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a call that cannot be stopped must not keep the pod running
