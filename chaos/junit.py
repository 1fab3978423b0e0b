"""The verdict of a run as JUnit XML."""

from xml.etree import ElementTree as ET

from chaos.judge import Judgement
from chaos.model import Verdict


def junit(judgement: Judgement) -> str:
    """Return the verdict as JUnit XML: violated is a failure, unknown is an error."""
    suite = ET.Element("testsuite", name=_xml_text(f"chaos.{judgement.experiment}"))
    counts = {"failure": 0, "error": 0}
    for found in judgement.findings:
        case = ET.SubElement(suite, "testcase", classname=suite.attrib["name"], name=found.name)
        if found.verdict is not Verdict.VALID:
            kind = "failure" if found.verdict is Verdict.VIOLATED else "error"
            counts[kind] += 1
            ET.SubElement(case, kind, message=_xml_text(found.detail), type=found.verdict)
    if judgement.end != "completed":
        case = ET.SubElement(
            suite, "testcase", classname=suite.attrib["name"], name="the run itself"
        )
        ET.SubElement(case, "error", message=_xml_text(judgement.reason or judgement.end))
        counts["error"] += 1
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="seed", value=str(judgement.seed))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
    )


def _xml_text(value: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return "".join(c if c in "\t\n\r" or c.isprintable() else "\ufffd" for c in value)
