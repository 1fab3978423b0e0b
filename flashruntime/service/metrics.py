"""Prometheus metrics: counters, gauges and histograms, and their text exposition format 0.0.4.

Written here because a counter on the path of every request costs a dictionary entry and no lock;
each metric has one thread that changes it. The format is checked against Prometheus' own parser.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

Labels = tuple[str, ...]
Samples = Iterable[tuple[str, str, float]]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric:
    """A name, what it means, and the names of its labels."""

    kind = "untyped"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = help_text
        self.labels = labels

    def samples(self) -> Samples:
        """Yield the suffix of the name, the labels as text, and the value of each series."""
        return ()

    def text(self) -> str:
        """Return the lines of this metric."""
        lines = [
            f"# HELP {self.name} {_escaped(self.help)}",
            f"# TYPE {self.name} {self.kind}",
        ]
        for suffix, labels, value in self.samples():
            lines.append(f"{self.name}{suffix}{labels} {_number(value)}")
        return "\n".join(lines)


class Counter(Metric):
    """A number that only rises, for each combination of labels; without labels it begins at 0."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        super().__init__(name, help_text, labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def inc(self, *labels: str, by: float = 1) -> None:
        """Add to one series."""
        self.values[labels] = self.values.get(labels, 0) + by

    def samples(self) -> Samples:
        """Yield each series."""
        for labels, value in list(self.values.items()):
            yield "", _text_of(self.labels, labels), value


class Gauge(Metric):
    """A number that is asked for when the metrics are read; NaN is never shown."""

    kind = "gauge"

    def __init__(
        self, name: str, help_text: str, ask: Callable[[], Mapping[Labels, float]], labels: Labels
    ) -> None:
        super().__init__(name, help_text, labels)
        self._ask = ask

    def samples(self) -> Samples:
        """Yield each series."""
        for labels, value in self._ask().items():
            yield "", _text_of(self.labels, labels), value


class AskedCounter(Gauge):
    """A counter whose value somebody else keeps."""

    kind = "counter"


class Histogram(Metric):
    """Counts of observations up to each bound, for each combination of labels."""

    kind = "histogram"

    def __init__(
        self, name: str, help_text: str, buckets: tuple[float, ...], labels: Labels = ()
    ) -> None:
        super().__init__(name, help_text, labels)
        self.buckets = buckets
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._add(())

    def _add(self, labels: Labels) -> list[int]:
        self._sums[labels] = 0.0
        return self._counts.setdefault(labels, [0] * (len(self.buckets) + 1))

    def observe(self, value: float, *labels: str) -> None:
        """Count one observation."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._add(labels)
        counts[bisect_left(self.buckets, value)] += 1
        self._sums[labels] += value

    def samples(self) -> Samples:
        """Yield the buckets, which add up, then the sum and the count of each series."""
        for labels, counts in list(self._counts.items()):
            named = [*self.labels, "le"]
            total = 0
            for bound, count in zip((*self.buckets, float("inf")), list(counts), strict=True):
                total += count
                yield "_bucket", _text_of(named, [*labels, _number(bound)]), total
            yield "_sum", _text_of(self.labels, labels), self._sums[labels]
            yield "_count", _text_of(self.labels, labels), total


class Registry:
    """The metrics of one application, in the order in which they were made."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []

    def counter(self, name: str, help_text: str, labels: Labels = ()) -> Counter:
        """Make a counter."""
        made = Counter(name, help_text, labels)
        self.metrics.append(made)
        return made

    def histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...], labels: Labels = ()
    ) -> Histogram:
        """Make a histogram with these upper bounds."""
        made = Histogram(name, help_text, buckets, labels)
        self.metrics.append(made)
        return made

    def gauge(
        self,
        name: str,
        help_text: str,
        ask: Callable[[], Mapping[Labels, float]],
        labels: Labels = (),
    ) -> None:
        """Make a gauge."""
        self.metrics.append(Gauge(name, help_text, ask, labels))

    def asked_counter(
        self, name: str, help_text: str, ask: Callable[[], Mapping[Labels, float]]
    ) -> None:
        """Make a counter that is asked for."""
        self.metrics.append(AskedCounter(name, help_text, ask, ()))

    def text(self) -> str:
        """Return everything in the exposition format."""
        return "\n".join(metric.text() for metric in self.metrics) + "\n"


def _text_of(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = [f'{name}="{_quoted(value)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(value)
