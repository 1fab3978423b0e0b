"""The application's description (OpenAPI): what FastAPI knows, and that tokens are asked for."""

from typing import Any

from fastapi import FastAPI

from flashruntime.service.rules import RULES, Access

SCHEME = {"token": {"type": "http", "scheme": "bearer", "description": "where tokens are in use"}}


class Described(FastAPI):
    """An application that says of every call but health that it takes a token."""

    def openapi(self) -> dict[str, Any]:
        """Return the description."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schema.setdefault("components", {})["securitySchemes"] = SCHEME
            schema["security"] = [{name: []} for name in SCHEME]
            for path, calls in schema["paths"].items():
                for method, call in calls.items():
                    if RULES.get(f"{method.upper()} {path}") is Access.OPEN:
                        call["security"] = []
        return super().openapi()
