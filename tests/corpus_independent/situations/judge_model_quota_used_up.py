"""An evaluation with a judge model whose account has no credit left: HTTP 429, then sys.exit."""

import logging
import sys

logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s", level=logging.INFO)


class RateLimitError(Exception):
    __module__ = "openai"


def judge(prompt: str) -> float:
    logging.getLogger("httpx").info(
        'HTTP Request: POST https://api.openai.com/v1/chat/completions "HTTP/1.1 429 Too Many '
        'Requests"'
    )
    raise RateLimitError(
        "Error code: 429 - {'error': {'message': 'You exceeded your current quota, please check "
        "your plan and billing details. For more information on this error, read the docs: "
        "https://platform.openai.com/docs/guides/error-codes/api-errors.', 'type': "
        "'insufficient_quota', 'param': None, 'code': 'insufficient_quota'}}"
    )


try:
    print(judge("Which of the two answers is better?"))
except RateLimitError as error:
    sys.exit(f"evaluation stopped after 0 of 500 items: {error}")
