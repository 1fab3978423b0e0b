"""Parts of paths that Starlette has no word for."""

from starlette.convertors import Convertor, register_url_convertor


class AnyText(Convertor[str]):
    """Takes the rest of a path, line ends included, so that a bad key is refused with a reason."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """Return the text as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text as it is."""
        return value


register_url_convertor("anytext", AnyText())
